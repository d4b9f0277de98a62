// The part of [train] about computation on one device.
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
           "data type of matrix products and activations");
  f.checked_text("recompute", o.recompute,
                 "activation checkpointing: none, blocks, sqrt, or budget:<bytes> (as little recomputation "
                 "as the peak memory allows)",
                 [](const std::string& text) {
                   bool budget = text.rfind("budget:", 0) == 0 && parse_bytes(text.substr(7)).has_value();
                   bool ok = text == "none" || text == "blocks" || text == "sqrt" || budget;
                   return ok ? "" : "none, blocks, sqrt or budget:<bytes> such as budget:512MB";
                 });
  f.integer("threads", o.threads, "intra-op threads; 0: all cores", 0, 4096);
  f.choice("conv", o.conv, {"auto", "onednn", "native", "channels_last"},
           "CPU convolution path; auto times all paths of each layer once and caches the fastest");
  f.boolean("channels_last", o.channels_last, "CUDA image models: channels-last memory format");
  f.boolean("cuda_graph", o.cuda_graph, "CUDA: capture the step as a CUDA graph and replay it");
  f.boolean(
      "deterministic", o.deterministic,
      "bit-identical results in every run and after a resume, also on CUDA; slower (docs/determinism.md)");
}

}  // namespace yoke::compute
