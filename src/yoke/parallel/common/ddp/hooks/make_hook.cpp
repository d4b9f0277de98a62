#include "yoke/base/error.h"
#include "yoke/parallel/common/ddp/hooks/hooks.h"
#include "yoke/parallel/common/ddp/options.h"

namespace yoke {
namespace {

struct NamedHook {
  const char* name;
  std::shared_ptr<CommHook> (*make)(double value);
};

constexpr NamedHook kHooks[] = {
    {"none", [](double) { return std::shared_ptr<CommHook>(); }},
    {"fp16", [](double) { return parallel::make_cast_hook(torch::kFloat16); }},
    {"bf16", [](double) { return parallel::make_cast_hook(torch::kBFloat16); }},
    {"powersgd", [](double value) { return parallel::make_powersgd_hook(static_cast<int64_t>(value)); }},
    {"topk", [](double value) { return parallel::make_topk_hook(value); }},
    {"sign", [](double) { return parallel::make_sign_hook(); }},
    {"int8", [](double) { return parallel::make_int8_hook(); }},
};

}  // namespace

std::shared_ptr<CommHook> make_hook(const std::string& text) {
  std::optional<HookChoice> choice = parse_hook(text);
  if (!choice) throw ConfigError("ddp.hook = \"{}\". Accepted: {}.", text, check_hook_text(text));
  for (const NamedHook& hook : kHooks)
    if (choice->name == hook.name) return hook.make(choice->value);
  YOKE_CHECK(false, "parse_hook() knows {}, and make_hook() does not", choice->name);
}

std::optional<torch::ScalarType> cast_of_hook(const std::string& text) {
  if (text == "fp16") return torch::kFloat16;
  if (text == "bf16") return torch::kBFloat16;
  return std::nullopt;
}

}  // namespace yoke
