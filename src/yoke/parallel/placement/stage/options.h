// [pipeline]: how a model runs as a pipeline of stages.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/config/fields.h"

namespace yoke::parallel {

struct PipelineOptions {
  std::string schedule = "1f1b";
  int64_t microbatches = 0;  // of each batch; 0: four for each stage, or one for each sample
  std::string stages;        // blocks of each stage, "0-3,4-7"; empty: balanced by an estimate of their work
  int64_t chunks = 0;        // of blocks on each stage; 0: two where interleaved, else one
  bool vertical_sync = false;
};

inline void describe(config::Fields& f, PipelineOptions& o) {
  f.choice("schedule", o.schedule, {"naive", "gpipe", "1f1b", "pipedream", "2bw", "interleaved", "zb-h1"},
           "pipeline schedule; pipedream and 2bw run without a flush");
  f.integer("microbatches", o.microbatches,
            "micro-batches per batch; 0: four per stage, at most one per sample", 0);
  f.text("stages", o.stages,
         "blocks of each stage, as \"0-3,4-7\" (yoke model info counts them); empty balances their work");
  f.integer("chunks", o.chunks, "interleaved: chunks of blocks per stage; 0: two", 0, 64);
  f.boolean("vertical_sync", o.vertical_sync,
            "pipedream: all stages use the weight version that the first stage used");
}

}  // namespace yoke::parallel
