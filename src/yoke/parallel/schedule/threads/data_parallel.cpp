#include "yoke/parallel/schedule/threads/data_parallel.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>

#include "yoke/base/error.h"
#include "yoke/parallel/schedule/threads/replicas.h"
#include "yoke/parallel/schedule/threads/worker_pool.h"

namespace yoke {

struct DataParallel::Impl {
  parallel::Replicas replicas;
  Forward forward;
  int64_t dim;
  parallel::WorkerPool pool;
  std::optional<torch::Device> output_device = std::nullopt;

  // Runs body(replica) in parallel; rethrows the first error with the replica's number.
  void for_replicas(size_t count, const std::function<void(size_t)>& body);
};

namespace {

using Tensors = std::vector<torch::Tensor>;
using torch::autograd::variable_list;

// One replica's part of a step.
struct Share {
  Nested input;  // leaves, on its device
  Nested output;
};

// An input for a replica: tensors that require grad become leaves, where its backward ends.
Nested leaves_of(const Nested& part, const torch::Device& device) {
  Tensors tensors = part.flatten();
  for (torch::Tensor& tensor : tensors) {
    bool wants = torch::GradMode::is_enabled() && tensor.requires_grad();
    tensor = tensor.detach().to(device, /*non_blocking=*/true);
    if (wants) tensor.requires_grad_();
  }
  return part.with(tensors);
}

// The one autograd node that represents all replicas in the user's graph: on the CPU, LibTorch would run
// their backward passes sequentially in the calling thread.
class ReplicasNode : public torch::autograd::Node {
 public:
  ReplicasNode(std::shared_ptr<DataParallel::Impl> impl, const Tensors& inputs, std::vector<Share> shares)
      : Node(torch::autograd::collect_next_edges(inputs)),
        impl_(std::move(impl)),
        shares_(std::move(shares)) {
    for (const torch::Tensor& input : inputs) wanted_.push_back(input.requires_grad());
    for (const torch::Tensor& input : inputs) cut_.push_back(input.dim() > impl_->dim);
  }

  variable_list apply(variable_list&& gradients) override {
    YOKE_CHECK(!shares_.empty(), "backward a second time through yoke::DataParallel: use retain_graph");
    YOKE_CHECK(!torch::GradMode::is_enabled(), "yoke::DataParallel does not support create_graph");
    bool keep = torch::autograd::get_current_graph_task_keep_graph();
    forget_failed_backward();
    std::vector<variable_list> roots(shares_.size()), root_gradients(shares_.size());
    for (size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i].defined()) hand_out(i, gradients[i], roots, root_gradients);
    if (impl_->replicas.all_on_cpu()) {
      impl_->for_replicas(shares_.size(), [&](size_t r) {
        if (!roots[r].empty()) torch::autograd::backward(roots[r], root_gradients[r], keep);
      });
    } else {
      // LibTorch has one thread per device, and this may be one of them: only a nested (reentrant) pass is
      // safe.
      variable_list all, all_gradients;
      for (size_t r = 0; r < shares_.size(); ++r) {
        all.insert(all.end(), roots[r].begin(), roots[r].end());
        all_gradients.insert(all_gradients.end(), root_gradients[r].begin(), root_gradients[r].end());
      }
      torch::autograd::backward(all, all_gradients, keep);
    }
    impl_->replicas.collect_gradients(shares_.size());
    return input_gradients();
  }

  void release_variables() override { shares_.clear(); }
  std::string name() const override { return "YokeDataParallel"; }

 private:
  void forget_failed_backward() {
    impl_->replicas.drop_gradients();
    for (const Share& share : shares_)
      for (const torch::Tensor& leaf : share.input.flatten())
        if (leaf.grad().defined()) leaf.mutable_grad().reset();
  }

  // Each replica's rows of the gradient of output `index`.
  void hand_out(size_t index, const torch::Tensor& gradient, std::vector<variable_list>& roots,
                std::vector<variable_list>& root_gradients) {
    int64_t row = 0;
    for (size_t r = 0; r < shares_.size(); ++r) {
      torch::Tensor output = shares_[r].output.flatten()[index];
      bool scalar = output.dim() == 0;
      int64_t rows = scalar ? 1 : output.size(impl_->dim);
      torch::Tensor piece = gradient.narrow(scalar ? 0 : impl_->dim, row, rows);
      row += rows;
      if (!output.requires_grad()) continue;
      roots[r].push_back(output);
      root_gradients[r].push_back((scalar ? piece.reshape({}) : piece).to(output.device()));
    }
  }

  variable_list input_gradients() {
    variable_list result(wanted_.size());
    for (size_t i = 0; i < wanted_.size(); ++i) {
      if (!wanted_[i]) continue;
      Tensors pieces;
      for (Share& share : shares_) {
        torch::Tensor leaf = share.input.flatten()[i];
        torch::Tensor piece = leaf.grad().defined() ? leaf.grad() : torch::zeros_like(leaf);
        pieces.push_back(piece.to(impl_->replicas.device(0)));
        leaf.mutable_grad() = torch::Tensor();
      }
      result[i] = cut_[i] ? torch::cat(pieces, impl_->dim) : torch::stack(pieces).sum(0);
    }
    return result;
  }

  std::shared_ptr<DataParallel::Impl> impl_;
  std::vector<Share> shares_;
  std::vector<bool> wanted_, cut_;
};

// The gathered outputs as results of the node.
Nested with_history(const std::shared_ptr<DataParallel::Impl>& impl, const Nested& input,
                    const Nested& joined, std::vector<Share> shares) {
  Tensors outputs = joined.flatten();
  std::vector<bool> differentiable(outputs.size());
  for (const Share& share : shares) {
    Tensors own = share.output.flatten();
    for (size_t i = 0; i < own.size(); ++i) differentiable[i] = differentiable[i] || own[i].requires_grad();
  }
  std::shared_ptr<ReplicasNode> node(new ReplicasNode(impl, input.flatten(), std::move(shares)),
                                     torch::autograd::deleteNode);
  for (size_t i = 0; i < outputs.size(); ++i)
    torch::autograd::set_history(differentiable[i] ? outputs[i] : torch::Tensor(), node);
  return joined.with(outputs);
}

}  // namespace

void DataParallel::Impl::for_replicas(size_t count, const std::function<void(size_t)>& body) {
  auto errors = pool.run(static_cast<int>(count), [&](int worker) { body(static_cast<size_t>(worker)); });
  for (size_t r = 0; r < count; ++r) {
    if (!errors[r]) continue;
    std::string where = fmt::format("replica {} of {} on {}", r, count, replicas.device(r).str());
    try {
      std::rethrow_exception(errors[r]);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", where, error.what()));
    } catch (const std::exception& error) {
      throw Error(ExitCode::kInternal, fmt::format("{}: {}", where, error.what()));
    }
  }
}

DataParallel::DataParallel(std::vector<std::shared_ptr<torch::nn::Module>> replicas, Forward forward,
                           int64_t dim) {
  int count = static_cast<int>(replicas.size());
  parallel::Replicas all(std::move(replicas));
  int threads = all.all_on_cpu() ? std::max(1, at::get_num_threads() / count) : 1;
  impl_.reset(new Impl{std::move(all), std::move(forward), dim, {count, threads}});
}

DataParallel::~DataParallel() = default;
DataParallel::DataParallel(DataParallel&&) noexcept = default;
DataParallel& DataParallel::operator=(DataParallel&&) noexcept = default;

void DataParallel::set_output_device(const torch::Device& device) {
  impl_->output_device = device;
}

size_t DataParallel::replicas() const {
  return impl_->replicas.size();
}

Nested DataParallel::forward(const Nested& input) {
  std::vector<Nested> parts = scatter(input, static_cast<int64_t>(impl_->replicas.size()), impl_->dim);
  impl_->replicas.refresh(parts.size());
  std::vector<Share> shares(parts.size());
  impl_->for_replicas(parts.size(), [&](size_t r) {
    shares[r].input = leaves_of(parts[r], impl_->replicas.device(r));
    shares[r].output = impl_->forward(r, shares[r].input);
  });
  std::vector<Nested> outputs;
  for (const Share& share : shares) outputs.push_back(share.output);
  Nested joined;
  {
    torch::NoGradGuard no_grad;
    joined = gather(outputs, impl_->dim, impl_->output_device);
  }
  if (!torch::GradMode::is_enabled()) return joined;
  return with_history(impl_, input, joined, std::move(shares));
}

}  // namespace yoke
