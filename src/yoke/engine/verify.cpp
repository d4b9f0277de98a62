#include "yoke/engine/verify.h"

#include <algorithm>
#include <charconv>
#include <mutex>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/comm/run_ranks.h"
#include "yoke/data/dataset.h"
#include "yoke/data/sampler.h"
#include "yoke/engine/run_state.h"
#include "yoke/plan/policies/rule.h"

namespace yoke::engine {
namespace {

using Tensors = std::vector<torch::Tensor>;

// The words of parameter servers.
bool set_server_word(Layout& layout, const std::string& name, const std::string& value) {
  if (name == "sync" && (value == "allreduce" || value == "ps")) layout.sync = value;
  else if (name == "policy") layout.policy = plan::to_string(plan::parse_rule(value));
  else if (name != "sync" && name != "policy") return false;
  return name != "sync" || layout.sync == value;
}

void set_word(Layout& layout, const std::string& word) {
  size_t equals = word.find('=');
  std::string name = word.substr(0, equals);
  if (equals != std::string::npos && set_server_word(layout, name, word.substr(equals + 1))) return;
  int64_t value = 0;
  const char* end = word.data() + word.size();
  bool number = equals != std::string::npos &&
                std::from_chars(word.data() + equals + 1, end, value).ptr == end && value >= 1;
  bool known = name == "data" || name == "accumulate" || name == "servers" || name == "k";
  if (!number || !known)
    throw ConfigError(
        "layout '{}': '{}' is not understood. A layout is data=N, accumulate=N, sync=ps, servers=N, policy=RULE, k=N, "
        "with commas.",
        layout.text, word);
  int64_t& wanted = name == "data"         ? layout.data
                    : name == "accumulate" ? layout.accumulate
                    : name == "servers"    ? layout.servers
                                           : layout.k;
  wanted = value;
}

// Numbers of one kind, compared element by element.
double relative_difference(const Tensors& ours, const Tensors& reference) {
  double worst = 0, scale = 1;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (!ours[i].defined() || !reference[i].defined()) continue;
    torch::Tensor b = reference[i].detach().to(torch::kFloat64);
    worst = std::max(worst, (ours[i].detach().to(torch::kFloat64) - b).abs().max().item<double>());
    scale = std::max(scale, b.abs().max().item<double>());
  }
  return worst / scale;
}

Tensors gradients_of(const Tensors& parameters) {
  Tensors gradients;
  for (const torch::Tensor& one : parameters) gradients.push_back(one.grad());
  return gradients;
}

// A worker with the weights it is told to start from.
struct Trainee {
  explicit Trainee(const WorkerOptions& options)
      : worker(make_worker(options)), parameters(worker->model.module->parameters()) {}

  void start_from(const std::vector<torch::Tensor>& weights) {
    torch::NoGradGuard no_grad;
    auto own = named_tensors(*worker->model.module);
    for (size_t i = 0; i < own.size(); ++i) own[i].second.copy_(weights[i]);
  }

  // The loss and gradients of one step, from the samples at `indices`, cut into micro-batches.
  double compute(const data::Dataset& dataset, std::span<const int64_t> indices, int64_t micro_batches) {
    worker->strategy->acquire();
    size_t each = indices.size() / static_cast<size_t>(micro_batches);
    torch::Tensor sum = torch::zeros({}, torch::kFloat64);
    for (int64_t i = 0; i < micro_batches; ++i) {
      data::Batch batch = dataset.gather(indices.subspan(static_cast<size_t>(i) * each, each));
      double weight = 1.0 / static_cast<double>(micro_batches);
      sum += worker->strategy->compute(batch.inputs, batch.target, {weight, i + 1 == micro_batches}).loss *
             weight;
    }
    return worker->strategy->agree({sum, 0}).loss.item<double>();
  }

  std::unique_ptr<Worker> worker;
  Tensors parameters;
};

void check_batch(int64_t batch, const Layout& layout) {
  if (batch % (layout.data * layout.accumulate) != 0)
    throw ConfigError("layout '{}': a batch of {} cannot be cut into {} equal parts. Set data.batch_size.",
                      layout.text, batch, layout.data * layout.accumulate);
}

}  // namespace

double Differences::largest() const {
  return std::max({loss, gradient, parameter});
}

std::vector<Layout> parse_layouts(const std::string& text) {
  std::vector<Layout> layouts;
  for (const std::string& part : split(text, ';')) {
    Layout layout;
    layout.text = trim(part);
    if (layout.text.empty()) continue;
    for (const std::string& word : split(layout.text, ',')) set_word(layout, trim(word));
    layouts.push_back(layout);
  }
  if (layouts.empty()) throw ConfigError("--layouts '{}': no layout. Say for example \"data=2\".", text);
  return layouts;
}

Verification verify(const VerifyOptions& options, const Layout& layout) {
  if (layout.sync == "ps") return verify_with_servers(options, layout);
  int64_t batch = options.worker.batch_size;
  check_batch(batch, layout);
  WorkerOptions alone = options.worker;
  alone.type = options.type;
  Trainee reference(alone);
  Tensors weights;
  for (const auto& [name, tensor] : named_tensors(*reference.worker->model.module))
    weights.push_back(tensor.clone());
  auto seed = static_cast<uint64_t>(options.worker.seed);
  auto dataset = data::open(options.data, data::Split::kTrain, reference.worker->model.sample, seed);
  data::DataOptions cut = options.data;
  cut.batch_size = batch;
  data::Sampler sampler(dataset->size(), cut, seed);

  Verification result;
  comm::run_ranks(static_cast<int>(layout.data), [&](comm::Communicator& comm) {
    WorkerOptions own = alone;
    own.replicas = &comm;
    own.accumulate = layout.accumulate;
    own.batch_size = batch / layout.data / layout.accumulate;
    Trainee trainee(own);
    trainee.start_from(weights);
    comm.barrier().wait();
    for (int64_t step = 0; step < options.steps; ++step) {
      int64_t epoch = step / sampler.batches_per_epoch();
      std::vector<int64_t> all = sampler.indices({epoch, step % sampler.batches_per_epoch()});
      std::span<const int64_t> mine(all);
      size_t part = all.size() / static_cast<size_t>(comm.size());
      mine = mine.subspan(part * static_cast<size_t>(comm.rank()), part);
      double loss = trainee.compute(*dataset, mine, layout.accumulate);
      if (comm.rank() == 0) {
        double expected = reference.compute(*dataset, all, 1);
        result.loss.push_back(loss);
        result.reference_loss.push_back(expected);
        Differences& worst = result.worst;
        worst.loss = std::max(worst.loss, std::abs(loss - expected) / std::max(1.0, std::abs(expected)));
        worst.gradient = std::max(worst.gradient, relative_difference(gradients_of(trainee.parameters),
                                                                      gradients_of(reference.parameters)));
        reference.worker->strategy->commit({options.worker.optimizer.lr, false});
      }
      trainee.worker->strategy->commit({options.worker.optimizer.lr, false});
      if (comm.rank() == 0)
        result.worst.parameter =
            std::max(result.worst.parameter, relative_difference(trainee.parameters, reference.parameters));
    }
  });
  return result;
}

}  // namespace yoke::engine
