#pragma once

namespace yoke::cli {

constexpr const char* kVersion = "0.1.0";

}  // namespace yoke::cli
