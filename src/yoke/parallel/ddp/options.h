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
  int64_t first_bucket_bytes = 1'000'000;  // small, so that communication begins early in backward
  bool delay_allreduce = false;         // everything after backward: for graphs that change from step to step
  bool find_unused = false;             // some parameters may get no gradient, others each time
  bool static_graph = false;            // the same parameters get none in every step
  bool gradient_as_bucket_view = true;  // false: gradients have memory of their own, at the price of copies
  bool broadcast_buffers = false;       // rank 0's buffers (BatchNorm's statistics) for everybody, each step
  bool share_parameters = true;         // with parallel.zero: ranks of one machine hold them once
  bool init_sync = true;                // ranks are compared and get rank 0's values at the start
  std::string reduction = "mean";       // or "sum"
  std::string hook = "none";            // how buckets travel: see ddp/hooks/make_hook.h
};

// What `ddp.hook` names: "powersgd:2" is {"powersgd", 2}.
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
  f.bytes("bucket_bytes", o.bucket_bytes, "gradients are reduced in buckets of about this size");
  f.bytes("first_bucket_bytes", o.first_bucket_bytes, "size of the bucket that is ready first");
  f.boolean("delay_allreduce", o.delay_allreduce, "reduce after backward instead of while it runs");
  f.boolean("find_unused", o.find_unused, "parameters without a gradient are allowed, and may change");
  f.boolean("static_graph", o.static_graph, "parameters without a gradient in the first step never get one");
  f.boolean("gradient_as_bucket_view", o.gradient_as_bucket_view, "gradients lie in the buckets themselves");
  f.boolean("broadcast_buffers", o.broadcast_buffers, "buffers of rank 0 are given to all ranks every step");
  f.boolean("share_parameters", o.share_parameters,
            "with parallel.zero, ranks that share memory hold the parameters once");
  f.choice("reduction", o.reduction, {"mean", "sum"}, "what the gradients of the ranks are combined to");
  f.checked_text("hook", o.hook, "how buckets travel: none, fp16, bf16, powersgd:R, topk:F, sign, int8",
                 check_hook_text);
}

}  // namespace yoke
