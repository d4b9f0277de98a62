#include "yoke/engine/verify_trainee.h"

#include <algorithm>
#include <cmath>
#include <future>

#include "yoke/checkpoint/pieces.h"
#include "yoke/engine/state_pieces.h"

namespace yoke::engine {
namespace {

using Tensors = std::vector<torch::Tensor>;

torch::Tensor numbers_of(const torch::Tensor& tensor) {
  torch::Tensor dense = tensor.is_sparse() ? tensor.detach().to_dense() : tensor.detach();
  return dense.to(torch::kFloat64);
}

WorkerOptions of_type(WorkerOptions options, torch::ScalarType type) {
  options.type = type;
  return options;
}

}  // namespace

double relative_difference(const Tensors& ours, const Tensors& reference) {
  if (ours.size() != reference.size()) return kInfinitelyApart;
  double worst = 0, scale = 0;
  bool compared = false;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (ours[i].defined() != reference[i].defined()) return kInfinitelyApart;
    if (!ours[i].defined() || reference[i].numel() == 0) continue;
    if (ours[i].sizes() != reference[i].sizes()) return kInfinitelyApart;
    torch::Tensor expected = numbers_of(reference[i]);
    // max() with a NaN is NaN.
    double apart = (numbers_of(ours[i]) - expected).abs().max().item<double>();
    double largest = expected.abs().max().item<double>();
    if (!std::isfinite(apart) || !std::isfinite(largest)) return kInfinitelyApart;
    worst = std::max(worst, apart);
    scale = std::max(scale, largest);
    compared = true;
  }
  if (!compared) return kInfinitelyApart;
  return worst == 0 ? 0 : scale > 0 ? worst / scale : kInfinitelyApart;
}

double relative_difference(double ours, double reference) {
  return relative_difference({torch::tensor(ours, torch::kFloat64)},
                             {torch::tensor(reference, torch::kFloat64)});
}

Trainee::Trainee(const WorkerOptions& options) : worker(make_worker(options)), lr(options.optimizer.lr) {}

void Trainee::start_from(const std::map<std::string, torch::Tensor>& weights) {
  torch::NoGradGuard no_grad;
  for (const parallel::StatePiece& piece : worker->strategy->state())
    if (piece.kind != parallel::StatePiece::Kind::kOptimizer)
      piece.values.copy_(checkpoint::cut(weights.at(piece.name), piece));
}

double Trainee::compute(const data::Dataset& dataset, std::span<const int64_t> indices, int64_t micro_batches,
                        double share) {
  worker->strategy->acquire();
  size_t each = indices.size() / static_cast<size_t>(micro_batches);
  torch::Tensor sum = torch::zeros({}, torch::kFloat64);
  for (int64_t i = 0; i < micro_batches; ++i) {
    data::Batch batch = dataset.gather(indices.subspan(static_cast<size_t>(i) * each, each));
    double weight = share / static_cast<double>(micro_batches);
    const parallel::MicroBatch micro{weight, i + 1 == micro_batches, lr};
    sum += worker->strategy->compute(batch.inputs, batch.target, micro).loss * weight;
  }
  // Workers of servers learn the others' losses later: this is their own.
  const torch::Tensor loss = worker->strategy->agree({sum, 0}).loss;
  worker->strategy->settle();
  return loss.item<double>();
}

VerifyBench::VerifyBench(const VerifyOptions& what)
    : options(what), reference(of_type(what.alone, what.type)) {
  const torch::nn::Module& module = *reference.worker->model.module;
  for (const auto& [name, tensor] : named_tensors(module)) weights[name] = tensor.clone();
  for (const auto& item : module.named_parameters()) parameters[item.key()] = item.value();
  auto seed = static_cast<uint64_t>(options.alone.seed);
  dataset = data::open(options.data, data::Split::kTrain, reference.worker->model.sample, seed);
  data::DataOptions cut = options.data;
  cut.batch_size = options.alone.batch_size;
  sampler = std::make_unique<data::Sampler>(dataset->size(), cut, seed);
}

double VerifyBench::apart(const std::vector<parallel::StatePiece>& pieces, bool gradients) const {
  Tensors ours, theirs;
  for (const parallel::StatePiece& piece : pieces) {
    if (piece.kind != parallel::StatePiece::Kind::kParameter) continue;
    auto found = parameters.find(piece.name);
    if (found == parameters.end()) return kInfinitelyApart;
    torch::Tensor whole = gradients ? found->second.grad() : found->second.detach();
    if (whole.defined() && whole.is_sparse()) whole = whole.to_dense();
    ours.push_back(piece.values);
    theirs.push_back(whole.defined() ? checkpoint::cut(whole, piece) : whole);
  }
  // A rank may have no parameters.
  return theirs.empty() && ours.empty() ? 0 : relative_difference(ours, theirs);
}

Trainee VerifyBench::trainee(int rank, const WorkerOptions& own) const {
  Trainee trainee(of_type(own, options.type));
  trainee.start_from(weights);
  if (options.tamper) options.tamper(rank, *trainee.worker);
  return trainee;
}

// On its own thread: thread-local state set up by a rank's strategy must not affect the reference.
void VerifyBench::compute_reference(const std::vector<int64_t>& samples, double loss, int64_t micro_batches) {
  auto compute = [&] { return reference.compute(*dataset, samples, micro_batches); };
  expected_loss = std::async(std::launch::async, compute).get();
  result.loss.push_back(loss);
  result.reference_loss.push_back(expected_loss);
}

void VerifyBench::note(const Differences& found) {
  std::lock_guard lock(mutex);
  Differences& worst = result.worst;
  worst.loss = std::max(worst.loss, found.loss);
  worst.gradient = std::max(worst.gradient, found.gradient);
  worst.parameter = std::max(worst.parameter, found.parameter);
}

}  // namespace yoke::engine
