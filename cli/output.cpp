#include "cli/output.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/log.h"

namespace yoke::cli {
namespace {

int fail(bool json, ExitCode code, const std::string& text) {
  log::error("{}", text);
  if (json) print_json({{"error", text}, {"exit_code", static_cast<int>(code)}});
  return static_cast<int>(code);
}

// LibTorch appends a C++ stack trace to its texts; the first line says what happened.
std::string without_trace(const std::string& text) {
  size_t trace = text.find("\nException raised from");
  return trace == std::string::npos ? text : text.substr(0, trace);
}

}  // namespace

void print_json(const nlohmann::json& document) {
  // Bytes that are not UTF-8 (a file name, say) must not turn a result into an exception.
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
  } catch (const std::bad_alloc&) {
    return fail(json, ExitCode::kInternal,
                "out of memory. Try a smaller data.batch_size, or train.recompute = \"blocks\".");
  } catch (const std::exception& error) {
    return fail(json, ExitCode::kInternal, without_trace(error.what()));
  }
}

}  // namespace yoke::cli
