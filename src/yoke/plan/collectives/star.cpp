// Star: one rank is the hub (the root if there is one, else rank 0) and does all the work.
#include "yoke/plan/collectives/phases.h"

namespace yoke::plan {
namespace {

constexpr int kHub = 0;

// Everybody's block is the whole buffer.
Blocks same_for_all(const CollectiveRequest& request) {
  return Blocks(static_cast<size_t>(request.size), whole(request));
}

}  // namespace

void star_all_reduce_form(const CollectiveRequest& request, StepWriter& out) {
  Blocks blocks = same_for_all(request);
  int round = direct_gather(out, 0, everybody(request), blocks, kHub, Action::kCombine);
  direct_scatter(out, round, everybody(request), blocks, kHub);
}

void star_reduce_form(const CollectiveRequest& request, StepWriter& out) {
  direct_gather(out, 0, everybody(request), same_for_all(request), request.root, Action::kCombine);
}

void star_reduce_scatter_form(const CollectiveRequest& request, StepWriter& out) {
  int round = direct_gather(out, 0, everybody(request), same_for_all(request), kHub, Action::kCombine);
  direct_scatter(out, round, everybody(request), part_blocks(request), kHub);
}

void star_all_gather_form(const CollectiveRequest& request, StepWriter& out) {
  int round = direct_gather(out, 0, everybody(request), part_blocks(request), kHub);
  direct_scatter(out, round, everybody(request), same_for_all(request), kHub);
}

void star_broadcast_form(const CollectiveRequest& request, StepWriter& out) {
  direct_scatter(out, 0, everybody(request), same_for_all(request), request.root);
}

void star_gather_form(const CollectiveRequest& request, StepWriter& out) {
  direct_gather(out, 0, everybody(request), part_blocks(request), request.root);
}

void star_scatter_form(const CollectiveRequest& request, StepWriter& out) {
  direct_scatter(out, 0, everybody(request), part_blocks(request), request.root);
}

void star_barrier_form(const CollectiveRequest& request, StepWriter& out) {
  int round = direct_gather(out, 0, everybody(request), same_for_all(request), kHub);
  direct_scatter(out, round, everybody(request), same_for_all(request), kHub);
}

}  // namespace yoke::plan
