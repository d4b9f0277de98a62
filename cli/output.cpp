#include "cli/output.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/json_text.h"
#include "yoke/base/log.h"
#include "yoke/base/terminal.h"
#include "yoke/cluster/identity.h"

namespace yoke::cli {
namespace {

// One document for the whole job.
bool is_first_rank() {
  try {
    return cluster::identify_from_environment().rank == 0;
  } catch (const Error&) {
    return true;
  }
}

int fail(bool json, ExitCode code, const std::string& text) {
  log::error("{}", text);
  if (json && is_first_rank()) print_json({{"error", text}, {"exit_code", static_cast<int>(code)}});
  return static_cast<int>(code);
}

// LibTorch appends a C++ stack trace to its texts; the first line says what happened.
std::string without_trace(const std::string& text) {
  size_t trace = text.find("\nException raised from");
  return trace == std::string::npos ? text : text.substr(0, trace);
}

// Recoverable by something smaller. For errors not explained closer to their cause; LibTorch's allocators
// throw their own types.
std::optional<std::string> out_of_memory(const std::exception& error) {
  const std::string text = error.what();
  const char* kHint = "Try a smaller data.batch_size or model, or train.recompute = \"blocks\".";
  constexpr std::string_view kAsked = "you tried to allocate ";
  if (size_t at = text.find(kAsked); at != std::string::npos)
    return fmt::format("not enough memory for {:.0f} bytes. {}",
                       std::strtod(text.c_str() + at + kAsked.size(), nullptr), kHint);
  const bool ran_out = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                       dynamic_cast<const std::length_error*>(&error) != nullptr ||
                       text.find("out of memory") != std::string::npos ||
                       text.find("can't allocate memory") != std::string::npos;
  if (!ran_out) return std::nullopt;
  return fmt::format("not enough memory. {}", kHint);
}

}  // namespace

int table_columns() {
  return terminal::is_terminal(STDOUT_FILENO) ? terminal::width(STDOUT_FILENO) : 0;
}

void print_json(const nlohmann::json& document) {
  // Bytes that are not UTF-8 (e.g. in a file name) must not turn a result into an exception.
  std::string text = document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

int run_program(int argc, char** argv, const std::function<int(const CommandLine&)>& command) {
  std::vector<std::string> words(argv + 1, argv + argc);
  bool json = std::find(words.begin(), words.end(), "--json") != words.end();
  try {
    CommandLine line = parse_command_line(words);
    if (line.quiet) log::set_level(log::Level::kWarning);
    return command(line);
  } catch (const Error& error) {
    return fail(json, error.code(), error.what());
  } catch (const nlohmann::json::exception& error) {
    return fail(json, ExitCode::kInternal, "unexpected JSON: " + json_problem(error));
  } catch (const std::exception& error) {
    if (std::optional<std::string> text = out_of_memory(error)) return fail(json, ExitCode::kUsage, *text);
    return fail(json, ExitCode::kInternal, without_trace(error.what()));
  }
}

}  // namespace yoke::cli
