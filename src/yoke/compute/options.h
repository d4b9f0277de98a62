// The part of [train] that says how one device computes.
#pragma once

#include <cstdint>
#include <string>

#include "yoke/base/units.h"
#include "yoke/config/fields.h"

namespace yoke::compute {

struct ComputeOptions {
  std::string device = "cpu";
  std::string precision = "fp32";
  std::string recompute = "none";
  int64_t threads = 0;        // 0: all cores of this process
  std::string conv = "auto";  // CPU convolution path
  bool channels_last = true;  // CUDA image models
  bool cuda_graph = true;     // CUDA: replay the whole step
  bool deterministic = false;
};

inline void describe(config::Fields& f, ComputeOptions& o) {
  f.checked_text("device", o.device, "cpu, cuda, or cuda:N", [](const std::string& text) {
    bool number = text.size() > 5 && text.find_first_not_of("0123456789", 5) == std::string::npos;
    bool ok = text == "cpu" || text == "cuda" || (text.rfind("cuda:", 0) == 0 && number);
    return ok ? "" : "cpu, cuda or cuda:N";
  });
  f.choice("precision", o.precision, {"fp32", "tf32", "bf16", "fp16"},
           "number format of matrix products and activations");
  f.checked_text("recompute", o.recompute,
                 "activations dropped in forward and computed again in backward: none, blocks, sqrt, or as "
                 "few as keep a step's "
                 "peak memory within budget:<bytes>",
                 [](const std::string& text) {
                   bool budget = text.rfind("budget:", 0) == 0 && parse_bytes(text.substr(7)).has_value();
                   bool ok = text == "none" || text == "blocks" || text == "sqrt" || budget;
                   return ok ? "" : "none, blocks, sqrt or budget:<bytes> such as budget:512MB";
                 });
  f.integer("threads", o.threads, "threads for computing; 0 takes every core", 0, 4096);
  f.choice("conv", o.conv, {"auto", "onednn", "native", "channels_last"},
           "CPU convolutions: auto measures each layer's paths once and remembers the fastest");
  f.boolean("channels_last", o.channels_last, "CUDA image models: store activations channels last");
  f.boolean("cuda_graph", o.cuda_graph, "CUDA: record the whole step once and replay it");
  f.boolean("deterministic", o.deterministic,
            "the same bits in every run and after a resume, also on CUDA; slower (docs/determinism.md)");
}

}  // namespace yoke::compute
