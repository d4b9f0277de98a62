// Validators for options with a number > 0, or >= 0. (CLI11's own print the largest double.)
#pragma once

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include <cmath>
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

inline CLI::Validator finite_from_zero() {
  auto check = [](std::string& text) {
    double value = 0;
    bool right = CLI::detail::lexical_cast(text, value) && value >= 0 && std::isfinite(value);
    return right ? std::string() : fmt::format("{} is not a number of at least 0", text);
  };
  return {check, "NUMBER"};
}

}  // namespace yoke::cli
