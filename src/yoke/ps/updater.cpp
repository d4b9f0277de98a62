#include "yoke/ps/updater.h"

#include <cstring>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/kernels/optimizer_steps.h"
#include "yoke/kernels/reduce.h"

namespace yoke::ps {
namespace {

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span<T>(values));
}

template <class T>
class Sgd final : public Updater {
 public:
  Sgd(const UpdaterOptions& options, int64_t count) : options_(options) {
    if (options.momentum != 0) velocity_.assign(static_cast<size_t>(count), T{0});
  }
  void apply(const UpdateStep& step, const void* gradient, const void* from, void* to) override {
    kernels::SgdStep kernel{step.lr, options_.momentum, options_.nesterov, options_.weight_decay};
    T* velocity = velocity_.empty() ? nullptr : velocity_.data() + step.offset;
    kernels::sgd<T>(kernel, step.weight, static_cast<const T*>(gradient), static_cast<const T*>(from),
                    static_cast<T*>(to), velocity, step.count);
  }
  std::vector<std::span<std::byte>> state() override {
    if (velocity_.empty()) return {};
    return {bytes_of(velocity_)};
  }

 private:
  UpdaterOptions options_;
  std::vector<T> velocity_;
};

template <class T>
class AdamW final : public Updater {
 public:
  AdamW(const UpdaterOptions& options, int64_t count)
      : options_(options), mean_(static_cast<size_t>(count)), mean_square_(static_cast<size_t>(count)) {}
  void apply(const UpdateStep& step, const void* gradient, const void* from, void* to) override {
    kernels::AdamwStep kernel{step.lr,      options_.beta1,        options_.beta2,
                              options_.eps, options_.weight_decay, steps + 1};
    kernels::adamw<T>(kernel, step.weight, static_cast<const T*>(gradient), static_cast<const T*>(from),
                      static_cast<T*>(to), mean_.data() + step.offset, mean_square_.data() + step.offset,
                      step.count);
  }
  std::vector<std::span<std::byte>> state() override { return {bytes_of(mean_), bytes_of(mean_square_)}; }

 private:
  UpdaterOptions options_;
  std::vector<T> mean_, mean_square_;
};

template <class T>
class Adagrad final : public Updater {
 public:
  Adagrad(const UpdaterOptions& options, int64_t count)
      : options_(options), sum_(static_cast<size_t>(count)) {}
  void apply(const UpdateStep& step, const void* gradient, const void* from, void* to) override {
    kernels::AdagradStep kernel{step.lr, options_.eps, options_.weight_decay};
    kernels::adagrad<T>(kernel, step.weight, static_cast<const T*>(gradient), static_cast<const T*>(from),
                        static_cast<T*>(to), sum_.data() + step.offset, step.count);
  }
  std::vector<std::span<std::byte>> state() override { return {bytes_of(sum_)}; }

 private:
  UpdaterOptions options_;
  std::vector<T> sum_;
};

template <class T>
class Ftrl final : public Updater {
 public:
  Ftrl(const UpdaterOptions& options, int64_t count)
      : options_(options), linear_(static_cast<size_t>(count)), sum_(static_cast<size_t>(count)) {}
  void apply(const UpdateStep& step, const void* gradient, const void* from, void* to) override {
    kernels::ftrl<T>({step.lr, options_.beta, options_.l1, options_.l2}, step.weight,
                     static_cast<const T*>(gradient), static_cast<const T*>(from), static_cast<T*>(to),
                     linear_.data() + step.offset, sum_.data() + step.offset, step.count);
  }
  std::vector<std::span<std::byte>> state() override { return {bytes_of(linear_), bytes_of(sum_)}; }

 private:
  UpdaterOptions options_;
  std::vector<T> linear_, sum_;
};

template <class T>
class Proximal final : public Updater {
 public:
  Proximal(const UpdaterOptions& options, int64_t) : options_(options) {}
  void apply(const UpdateStep& step, const void* gradient, const void* from, void* to) override {
    kernels::proximal<T>({step.lr, options_.l1, options_.l2}, step.weight, static_cast<const T*>(gradient),
                         static_cast<const T*>(from), static_cast<T*>(to), step.count);
  }

 private:
  UpdaterOptions options_;
};

template <class T>
class Lion final : public Updater {
 public:
  Lion(const UpdaterOptions& options, int64_t count)
      : options_(options), momentum_(static_cast<size_t>(count)) {}
  void apply(const UpdateStep& step, const void* gradient, const void* from, void* to) override {
    kernels::lion<T>({step.lr, options_.beta1, options_.beta2, options_.weight_decay}, step.weight,
                     static_cast<const T*>(gradient), static_cast<const T*>(from), static_cast<T*>(to),
                     momentum_.data() + step.offset, step.count);
  }
  std::vector<std::span<std::byte>> state() override { return {bytes_of(momentum_)}; }

 private:
  UpdaterOptions options_;
  std::vector<T> momentum_;
};

template <class T>
class Adder final : public Updater {
 public:
  Adder(const UpdaterOptions&, int64_t) {}
  void apply(const UpdateStep& step, const void* gradient, const void* from, void* to) override {
    if (step.weight == 1) {
      DataType type = sizeof(T) == sizeof(float) ? DataType::kFloat32 : DataType::kFloat64;
      void* const outs[] = {to};
      const void* const sources[] = {from, gradient};
      return kernels::reduce(outs, sources, static_cast<size_t>(step.count), type, ReduceOp::kSum);
    }
    if (to != from) std::memcpy(to, from, static_cast<size_t>(step.count) * sizeof(T));
    kernels::add_scaled<T>(static_cast<T*>(to), static_cast<const T*>(gradient), step.weight, step.count);
  }
};

class Custom final : public Updater {
 public:
  Custom(UpdateFunction function, DataType type) : function_(std::move(function)), type_(type) {}
  void apply(const UpdateStep& step, const void* gradient, const void* from, void* to) override {
    function_(step, type_, gradient, from, to);
  }

 private:
  UpdateFunction function_;
  DataType type_;
};

template <template <class> class Kind>
std::unique_ptr<Updater> make_of(const UpdaterOptions& options, DataType type, int64_t count) {
  if (type == DataType::kFloat32) return std::make_unique<Kind<float>>(options, count);
  if (type == DataType::kFloat64) return std::make_unique<Kind<double>>(options, count);
  throw ConfigError("parameters of type {}: a server keeps fp32 or fp64.", to_string(type));
}

}  // namespace

MakeUpdater make_optimizer(const UpdaterOptions& options) {
  using Make = std::unique_ptr<Updater> (*)(const UpdaterOptions&, DataType, int64_t);
  constexpr std::pair<const char*, Make> kOptimizers[] = {
      {"sgd", make_of<Sgd>},   {"adamw", make_of<AdamW>},       {"adagrad", make_of<Adagrad>},
      {"ftrl", make_of<Ftrl>}, {"proximal", make_of<Proximal>}, {"lion", make_of<Lion>}};
  for (const auto& [name, make] : kOptimizers) {
    if (options.optimizer == name)
      return [options, make = make](DataType type, int64_t, int64_t count) {
        return make(options, type, count);
      };
  }
  throw ConfigError("train.optimizer = \"{}\": servers support sgd, adamw, adagrad, ftrl, proximal and lion.",
                    options.optimizer);
}

MakeUpdater make_adder() {
  return [](DataType type, int64_t, int64_t count) { return make_of<Adder>({}, type, count); };
}

MakeUpdater make_custom(UpdateFunction function) {
  return [function = std::move(function)](DataType type, int64_t, int64_t) {
    return std::make_unique<Custom>(function, type);
  };
}

}  // namespace yoke::ps
