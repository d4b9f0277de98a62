#include "yoke/parallel/schedule/pipeline/interpreter.h"

#include <utility>

#include "yoke/base/clock.h"
#include "yoke/base/error.h"
#include "yoke/base/fault.h"

namespace yoke::parallel {
namespace {

using plan::ScheduleAction;
using plan::ScheduleOp;
using plan::StreamAction;

constexpr int kAhead = 2;           // receives posted per direction
constexpr size_t kLookAhead = 64;   // actions
constexpr size_t kMostLeaving = 4;  // batches of an evaluation in flight

bool is_pass(ScheduleOp op) {
  return op == ScheduleOp::kForward || op == ScheduleOp::kBackward || op == ScheduleOp::kWeight;
}

bool receives(ScheduleOp op) {
  return op == ScheduleOp::kReceiveActivation || op == ScheduleOp::kReceiveGradient;
}

bool carries_gradients(ScheduleOp op) {
  return op == ScheduleOp::kReceiveGradient || op == ScheduleOp::kSendGradient;
}

// The last action of each chunk that adds to gradients.
std::vector<size_t> ends_of_chunks(const std::vector<StreamAction>& actions, int chunks) {
  std::vector<size_t> ends(static_cast<size_t>(chunks), actions.size());
  for (size_t i = 0; i < actions.size(); ++i) {
    const ScheduleAction& one = actions[i].action;
    if (one.op == ScheduleOp::kBackward || one.op == ScheduleOp::kWeight)
      ends[static_cast<size_t>(one.chunk)] = i;
  }
  return ends;
}

}  // namespace

Interpreter::Interpreter(const PipelineLayout& layout, PipelinePlace place, StageRunner& runner,
                         WeightVersions& versions, Transfers& transfers)
    : layout_(layout), place_(place), runner_(runner), versions_(versions), transfers_(transfers) {}

torch::Tensor Interpreter::run(const std::vector<StreamAction>& actions, const MicroBatches& batch,
                               const Updates& updates) {
  torch::Tensor loss;
  events_.clear();
  for (size_t i = 0; i < batch.parts.size(); ++i)
    shapes_[batch.first + static_cast<int>(i)] = batch.parts[i].shape;
  std::vector<size_t> ends = ends_of_chunks(actions, layout_.request.chunks);
  // Chunk whose sums start after the sends that follow its last pass: other stages wait for those
  int complete = -1;
  for (size_t i = 0; i < actions.size(); ++i) {
    look_ahead(actions, i);
    const auto& [action, last_use] = actions[i];
    if (complete >= 0 && action.op != ScheduleOp::kSendGradient)
      updates.complete(std::exchange(complete, -1));
    if (is_pass(action.op) && action.version > versions_.newest_version()) updates.need(action.version);
    double start = now_seconds();
    if (action.op == ScheduleOp::kUpdate)
      updates.update(actions[i]);
    else
      carry_out(action, batch, loss);
    if (is_pass(action.op) && last_use) versions_.release(action.version);
    if (is_pass(action.op) || action.op == ScheduleOp::kUpdate)
      events_.push_back({action.op, action.microbatch, action.chunk, start, now_seconds()});
    if (ends[static_cast<size_t>(action.chunk)] == i) complete = action.chunk;
  }
  return loss.defined() ? loss : torch::zeros({}, torch::kFloat64);
}

void Interpreter::carry_out(const ScheduleAction& action, const MicroBatches& batch, torch::Tensor& loss) {
  std::pair<int, int> pass{action.chunk, action.microbatch};
  if (action.op == ScheduleOp::kSendActivation || action.op == ScheduleOp::kSendGradient)
    fault::at(fault::Point::kPipelineSend);
  switch (action.op) {
    case ScheduleOp::kReceiveActivation:
    case ScheduleOp::kReceiveGradient:
      expect(action, /*must=*/true);
      arrived_[key(action)] = transfers_.take(key(action));
      break;
    case ScheduleOp::kForward:
      return forward(action, batch, loss);
    case ScheduleOp::kSendActivation:
      send_outputs(action.chunk, action.peer, outputs_.at(pass), shapes_.at(action.microbatch),
                   name(action, /*sending=*/true));
      outputs_.erase(pass);
      break;
    case ScheduleOp::kBackward:
      return backward(action);
    case ScheduleOp::kSendGradient:
      transfers_.send(line(action), back_.at(pass), name(action, /*sending=*/true));
      back_.erase(pass);
      break;
    case ScheduleOp::kWeight:
      return runner_.weight(action.chunk, action.microbatch);
    case ScheduleOp::kUpdate:
      break;
  }
}

void Interpreter::forward(const ScheduleAction& action, const MicroBatches& batch, torch::Tensor& loss) {
  const auto& part = batch.parts.at(static_cast<size_t>(action.microbatch - batch.first));
  Tensors inputs = part.inputs;
  if (!runner_.is_first(action.chunk)) {
    inputs = arrived({false, runner_.number_of(action.chunk), action.microbatch});
    const BoundarySpec& spec = specs_of_inputs_.at({action.chunk, action.microbatch});
    for (size_t i = 0; i < inputs.size(); ++i)
      if (spec[i].differentiable) inputs[i].requires_grad_();
    specs_of_inputs_.erase({action.chunk, action.microbatch});
  }
  versions_.use(action.version);
  const Tensors& outputs = runner_.forward(action.chunk, action.microbatch, std::move(inputs));
  if (!runner_.is_last(action.chunk)) {
    outputs_[{action.chunk, action.microbatch}] = outputs;
    return;
  }
  torch::Tensor own = runner_.finish(action.chunk, action.microbatch, part.target, part.weight);
  own = own.to(torch::kFloat64) * part.share;
  loss = loss.defined() ? loss + own : own;
}

void Interpreter::backward(const ScheduleAction& action) {
  Tensors gradients;
  if (!runner_.is_last(action.chunk))
    gradients = arrived({true, runner_.number_of(action.chunk) + 1, action.microbatch});
  versions_.use(action.version);
  Tensors back = runner_.backward(action.chunk, action.microbatch, gradients);
  if (!runner_.is_first(action.chunk)) back_[{action.chunk, action.microbatch}] = std::move(back);
  if (action.chunk == 0) shapes_.erase(action.microbatch);
}

void Interpreter::send_outputs(int chunk, int peer, const Tensors& outputs, const Shape& shape,
                               const std::string& name) {
  Line to{layout_.rank_of(peer, place_.copy), runner_.number_of(chunk) + 1, false};
  SpecKey key{to.boundary, to.peer, shape};
  auto [found, unknown] = own_specs_.try_emplace(key, spec_of(outputs));
  if (unknown) transfers_.send_spec(to, found->second);
  YOKE_CHECK(found->second == spec_of(outputs), "what crosses boundary {} has changed its shape",
             to.boundary);
  transfers_.send(to, outputs, name);
}

// Shapes of a boundary are sent once per shape signature, before the first tensors. look_ahead() must not
// block, so it skips boundaries whose shapes are unknown; the receive action itself (`must`) waits for them.
bool Interpreter::expect(const ScheduleAction& action, bool must) {
  Transfers::Key where = key(action);
  if (transfers_.expected(where)) return true;
  Line from = line(action);
  auto shape = shapes_.find(action.microbatch);
  if (shape == shapes_.end()) return false;
  SpecKey which{from.boundary, from.peer, shape->second};
  if (from.gradients) {
    auto found = own_specs_.find(which);
    if (found == own_specs_.end()) return false;
    transfers_.expect(where, from, differentiable(found->second), name(action, /*sending=*/false));
    return true;
  }
  auto found = specs_.find(which);
  if (found == specs_.end()) {
    if (!must) return false;
    found = specs_.emplace(which, transfers_.receive_spec(from)).first;
  }
  specs_of_inputs_[{action.chunk, action.microbatch}] = found->second;
  transfers_.expect(where, from, found->second, name(action, /*sending=*/false));
  return true;
}

// Posting receives ahead lets data arrive during computation. Posted in list order per direction, and stopped
// at the first one that cannot be posted: receives of one line must be posted in the order of the peer's
// sends.
void Interpreter::look_ahead(const std::vector<StreamAction>& actions, size_t from) {
  int left[2] = {kAhead, kAhead};  // by direction
  size_t end = std::min(actions.size(), from + kLookAhead);
  for (size_t i = from; i < end && left[0] + left[1] > 0; ++i) {
    const ScheduleAction& action = actions[i].action;
    if (!receives(action.op)) continue;
    int& budget = left[carries_gradients(action.op) ? 1 : 0];
    if (budget > 0 && !expect(action, /*must=*/false)) budget = 0;
    if (budget > 0) --budget;
  }
}

Interpreter::Tensors Interpreter::arrived(const Transfers::Key& where) {
  auto found = arrived_.find(where);
  YOKE_CHECK(found != arrived_.end(), "micro-batch {} has not come", std::get<2>(where));
  Tensors tensors = std::move(found->second);
  arrived_.erase(found);
  return tensors;
}

Line Interpreter::line(const ScheduleAction& action) const {
  bool towards_output = action.op == ScheduleOp::kSendActivation || action.op == ScheduleOp::kReceiveGradient;
  int boundary = runner_.number_of(action.chunk) + (towards_output ? 1 : 0);
  return {layout_.rank_of(action.peer, place_.copy), boundary, carries_gradients(action.op)};
}

Transfers::Key Interpreter::key(const ScheduleAction& action) const {
  Line from = line(action);
  return {from.gradients, from.boundary, action.microbatch};
}

std::string Interpreter::name(const ScheduleAction& action, bool sending) const {
  int peer = layout_.stage_of_rank(layout_.rank_of(action.peer, place_.copy));
  int from = sending ? place_.stage : peer, to = sending ? peer : place_.stage;
  return fmt::format("{} {} stage {}>{}", carries_gradients(action.op) ? "gradient" : "activation",
                     action.microbatch, from, to);
}

std::vector<torch::Tensor> Interpreter::evaluate(const Tensors& inputs, const Shape& shape) {
  int turn = evaluated_++;
  auto worker_for = [&](int number) {  // the replica whose turn it is
    int stage = number % layout_.request.stages, first = 0;
    for (int s = 0; s < stage; ++s) first += layout_.request.replicas_of(s);
    return first + turn % layout_.request.replicas_of(stage);
  };
  if (worker_for(place_.stage) != place_.worker) return {};
  Tensors values;
  for (int chunk = 0; chunk < layout_.request.chunks; ++chunk) {
    int number = runner_.number_of(chunk);
    if (runner_.is_first(chunk)) {
      values = inputs;
    } else {
      Line from{layout_.rank_of(worker_for(number - 1), place_.copy), number, false};
      SpecKey which{from.boundary, from.peer, shape};
      auto found = specs_.find(which);
      if (found == specs_.end()) found = specs_.emplace(which, transfers_.receive_spec(from)).first;
      Transfers::Key where{false, number, turn};
      transfers_.expect(where, from, found->second, "evaluation");
      values = transfers_.take(where);
    }
    values = runner_.evaluate(chunk, values);
    if (runner_.is_last(chunk)) return values;
    send_outputs(chunk, worker_for(number + 1), values, shape, "evaluation");
  }
  transfers_.settle(kMostLeaving);
  return {};
}

double Interpreter::seconds(ScheduleOp op) const {
  double sum = 0;
  for (const PipelineEvent& one : events_)
    if (one.op == op) sum += one.end - one.start;
  return sum;
}

}  // namespace yoke::parallel
