#include "yoke/parallel/sync/servers/overlap.h"

#include <algorithm>
#include <unordered_map>

#include "yoke/base/error.h"

namespace yoke::parallel {

Overlap::Overlap(const models::Model& model, const std::vector<torch::Tensor>& parameters,
                 ps::Learner& learner, HostCopies& copies, Moves moves)
    : learner_(learner), copies_(copies), moves_(std::move(moves)), delivered_(parameters.size(), false) {
  map_ranges(parameters);
  map_blocks(model, parameters);
  for (size_t i = 0; i < parameters.size(); ++i) hooks_.add(parameters[i], [this, i] { on_gradient(i); });
}

void Overlap::map_ranges(const std::vector<torch::Tensor>& parameters) {
  parameters_in_range_.assign(learner_.ranges(), 0);
  int64_t begin = 0;
  size_t range = 0;
  for (const torch::Tensor& parameter : parameters) {
    const int64_t end = begin + parameter.numel();
    std::vector<size_t>& own = ranges_of_parameter_.emplace_back();
    while (range < learner_.ranges() && learner_.range(range).end() <= begin) ++range;
    for (size_t r = range; r < learner_.ranges() && learner_.range(r).begin < end; ++r) {
      own.push_back(r);
      ++parameters_in_range_[r];
    }
    begin = end;
  }
}

// Parameters that belong to no block are waited for before the first one.
void Overlap::map_blocks(const models::Model& model, const std::vector<torch::Tensor>& parameters) {
  std::unordered_map<const void*, size_t> index;
  for (size_t i = 0; i < parameters.size(); ++i) index[parameters[i].unsafeGetTensorImpl()] = i;
  std::vector<bool> used(parameters.size(), false);
  ranges_of_block_.resize(model.blocks.size());
  parameters_of_block_.resize(model.blocks.size());
  auto use = [&](size_t block, size_t parameter) {
    used[parameter] = true;
    parameters_of_block_[block].push_back(parameter);
    const std::vector<size_t>& own = ranges_of_parameter_[parameter];
    ranges_of_block_[block].insert(ranges_of_block_[block].end(), own.begin(), own.end());
  };
  for (size_t block = 0; block < model.blocks.size(); ++block)
    for (const auto& module : model.blocks[block].modules)
      for (const torch::Tensor& parameter : module->parameters())
        if (auto found = index.find(parameter.unsafeGetTensorImpl()); found != index.end())
          use(block, found->second);
  for (size_t i = 0; i < parameters.size(); ++i)
    if (!used[i]) use(0, i);
}

void Overlap::begin_pull(void* parameters) {
  delivered_.assign(delivered_.size(), false);
  learner_.begin_pull(parameters);
}

void Overlap::await_block(size_t block) {
  for (size_t range : ranges_of_block_[block]) learner_.await_range(range);
  for (size_t parameter : parameters_of_block_[block]) deliver(parameter);
}

bool Overlap::end_pull() {
  const bool exact = learner_.end_pull();
  if (exact)
    for (size_t i = 0; i < delivered_.size(); ++i) deliver(i);
  return exact;
}

void Overlap::deliver(size_t parameter) {
  if (!moves_.deliver || delivered_[parameter]) return;
  moves_.deliver(parameter);
  delivered_[parameter] = true;
}

void Overlap::begin_backward(const ps::Gradient& gradient, void* parameters) {
  learner_.begin_push(gradient, parameters);
  watching_ = true;
  finite_ = true;
  arrived_.assign(ranges_of_parameter_.size(), 0);
  missing_ = parameters_in_range_;
  leaving_.clear();
}

void Overlap::on_gradient(size_t parameter) {
  if (!watching_) return;
  ++arrived_[parameter];
  if (expected_.empty() || arrived_[parameter] < expected_[parameter]) return;
  if (arrived_[parameter] > expected_[parameter])
    throw ConfigError(
        "a parameter got {} gradients in this backward pass and {} in the first one, after which it was "
        "pushed. Where the graph changes from step to step, set ps.overlap = false.",
        arrived_[parameter], expected_[parameter]);
  moves_.gather(parameter);
  for (size_t range : ranges_of_parameter_[parameter])
    if (--missing_[range] == 0) complete(range);
  push_arrived(/*wait=*/false);
}

void Overlap::complete(size_t range) {
  leaving_.push_back({range, copies_.mark()});
}

void Overlap::push_arrived(bool wait) {
  for (; !leaving_.empty() && (wait || leaving_.front().copied.is_done()); leaving_.pop_front()) {
    leaving_.front().copied.wait();
    finite_ = learner_.push_range(leaving_.front().range) && finite_;
  }
}

bool Overlap::end_backward() {
  watching_ = false;
  for (size_t i = 0; i < arrived_.size(); ++i)
    if (expected_.empty() || arrived_[i] < expected_[i]) moves_.gather(i);
  for (size_t range = 0; range < missing_.size(); ++range)
    if (missing_[range] > 0) complete(range);
  push_arrived(/*wait=*/true);
  if (expected_.empty())
    for (int count : arrived_) expected_.push_back(std::max(1, count));
  return finite_;
}

}  // namespace yoke::parallel
