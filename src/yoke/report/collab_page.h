// A collaborative run as its meeting point sees it: who is in, what each gave, the batch, the loss.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace yoke::report {

// For a terminal of this width; 0: no limit. `status`: the answer of the meeting point (collab/meeting.h).
std::string collab_text(const nlohmann::json& status, int width);

// A page that reloads itself every `seconds`, until the run has ended.
std::string collab_page(const nlohmann::json& status, double seconds);

}  // namespace yoke::report
