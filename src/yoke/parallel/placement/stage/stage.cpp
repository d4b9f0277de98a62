#include "yoke/parallel/placement/stage/stage.h"

#include <utility>

#include "yoke/base/error.h"
#include "yoke/plan/schedules/orders.h"

namespace yoke::parallel {
namespace {

std::vector<OwnedTensor> keep_own(std::vector<OwnedTensor> tensors, int stage) {
  release_others(tensors, stage);
  return tensors;
}

PipelinePlace checked_place(const PipelineLayout& layout, const comm::Communicator& comm) {
  if (layout.ranks() != comm.size())
    throw ConfigError("a pipeline of {} ranks ({} stages) with {}: start as many, with --nproc {}.",
                      layout.ranks(), layout.request.stages, comm.size(), layout.ranks());
  return layout.place_of(comm.rank());
}

}  // namespace

PipelineStage::PipelineStage(const models::Model& model, PipelineLayout made, comm::Communicator& comm)
    : PipelineStage(owned_tensors(model, made), made, comm) {}

PipelineStage::PipelineStage(std::vector<OwnedTensor> owned, PipelineLayout made, comm::Communicator& comm)
    : world(comm),
      layout(std::move(made)),
      place(checked_place(layout, comm)),
      tensors(keep_own(std::move(owned), place.stage)),
      versions(trained_parameters(tensors, place.stage), !plan::flushes(layout.request.kind)) {}

}  // namespace yoke::parallel
