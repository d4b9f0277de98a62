// What all ranks of a pipeline executed in a step, as one document: `pipeline.json`, drawn by the report.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "yoke/parallel/placement/stage/stage.h"
#include "yoke/parallel/schedule/pipeline/interpreter.h"

namespace yoke::parallel {

// `own`: events of this rank. Collective; the same result on every rank.
nlohmann::json pipeline_timeline(const PipelineStage& stage, const std::vector<PipelineEvent>& own);

}  // namespace yoke::parallel
