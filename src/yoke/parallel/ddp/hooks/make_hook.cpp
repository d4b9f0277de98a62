#include "yoke/base/error.h"
#include "yoke/parallel/ddp/comm_hook.h"
#include "yoke/parallel/ddp/options.h"

namespace yoke {

std::shared_ptr<CommHook> make_hook(const std::string& text) {
  if (text == "none") return nullptr;
  throw ConfigError("hook '{}': accepted are {}.", text, check_hook_text(text));
}

}  // namespace yoke
