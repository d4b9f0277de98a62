// A check for options whose value is a number above 0. (CLI11's own tells the largest number there is.)
#pragma once

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include <string>

namespace yoke::cli {

inline CLI::Validator positive() {
  auto check = [](std::string& text) {
    double value = 0;
    bool right = CLI::detail::lexical_cast(text, value) && value > 0;
    return right ? std::string() : fmt::format("{} is not a number above 0", text);
  };
  return {check, "POSITIVE"};
}

}  // namespace yoke::cli
