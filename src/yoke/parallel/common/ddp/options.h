// [ddp]: how gradients of replicas are combined.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>

#include "yoke/config/fields.h"

namespace yoke {

struct DdpOptions {
  int64_t bucket_bytes = 25'000'000;
  int64_t first_bucket_bytes = 1'000'000;  // small, so that communication starts early in backward
  bool delay_allreduce = false;            // reduce after backward: for graphs that change between steps
  bool find_unused = false;             // some parameters may have no gradient, different ones in each step
  bool static_graph = false;            // the same parameters have none in every step
  bool gradient_as_bucket_view = true;  // false: gradients have their own memory, at the cost of copies
  bool broadcast_buffers = false;       // broadcast rank 0's buffers (BatchNorm statistics) in each step
  bool share_parameters = true;         // with parallel.zero: ranks of one machine keep one copy
  bool init_sync = true;                // compare the ranks at the start and broadcast rank 0's values
  std::string reduction = "mean";       // or "sum"
  std::string hook = "none";            // gradient compression: see ddp/hooks/hooks.h
};

// Parsed `ddp.hook`: "powersgd:2" is {"powersgd", 2}.
struct HookChoice {
  std::string name;
  double value = 0;  // rank of powersgd, kept fraction of topk
};

inline std::optional<HookChoice> parse_hook(const std::string& text) {
  for (const char* plain : {"none", "fp16", "bf16", "sign", "int8"})
    if (text == plain) return HookChoice{text, 0};
  size_t colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  HookChoice choice{text.substr(0, colon), 0};
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data() + colon + 1, end, choice.value);
  if (error != std::errc() || rest != end) return std::nullopt;
  bool whole = choice.value == static_cast<double>(static_cast<int64_t>(choice.value));
  if (choice.name == "powersgd" && whole && choice.value >= 1 && choice.value <= 1024) return choice;
  if (choice.name == "topk" && choice.value > 0 && choice.value <= 1) return choice;
  return std::nullopt;
}

// "" or what is accepted.
inline std::string check_hook_text(const std::string& text) {
  if (parse_hook(text)) return "";
  return "none, fp16, bf16, powersgd:R (R at least 1), topk:F (F above 0, at most 1), sign or int8";
}

inline void describe(config::Fields& f, DdpOptions& o) {
  f.bytes("bucket_bytes", o.bucket_bytes, "bucket size of gradient reduction");
  f.bytes("first_bucket_bytes", o.first_bucket_bytes, "size of the first bucket");
  f.boolean("delay_allreduce", o.delay_allreduce, "reduce after the backward pass instead of during it");
  f.boolean("find_unused", o.find_unused, "allow parameters without a gradient, different ones in each step");
  f.boolean("static_graph", o.static_graph, "parameters without a gradient in the first step never get one");
  f.boolean("gradient_as_bucket_view", o.gradient_as_bucket_view, "gradients are views into the buckets");
  f.boolean("broadcast_buffers", o.broadcast_buffers, "broadcast rank 0's buffers after every step");
  f.boolean("share_parameters", o.share_parameters,
            "with parallel.zero, ranks on one machine keep one copy of the parameters");
  f.choice("reduction", o.reduction, {"mean", "sum"}, "how gradients are combined across ranks");
  f.checked_text("hook", o.hook, "gradient compression: none, fp16, bf16, powersgd:R, topk:F, sign, int8",
                 check_hook_text);
}

}  // namespace yoke
