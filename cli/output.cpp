#include "cli/output.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <vector>

#include "yoke/base/error.h"
#include "yoke/base/json_text.h"
#include "yoke/base/log.h"
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

// Nothing is broken: something smaller will do.
std::string out_of_memory(const std::string& asked) {
  return fmt::format(
      "not enough memory{}. Try a smaller data.batch_size or model, or train.recompute = \"blocks\".", asked);
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
    return fail(json, ExitCode::kUsage, out_of_memory(""));
  } catch (const std::length_error&) {  // a container larger than any memory
    return fail(json, ExitCode::kUsage, out_of_memory(""));
  } catch (const nlohmann::json::exception& error) {
    return fail(json, ExitCode::kInternal, "unexpected JSON: " + json_problem(error));
  } catch (const std::exception& error) {
    std::string text = without_trace(error.what());
    // LibTorch's allocator has no type of its own for it.
    size_t bytes = text.find("you tried to allocate ");
    if (text.find("DefaultCPUAllocator") != std::string::npos && bytes != std::string::npos)
      return fail(
          json, ExitCode::kUsage,
          out_of_memory(fmt::format(" for {:.0f} bytes", std::strtod(text.c_str() + bytes + 22, nullptr))));
    return fail(json, ExitCode::kInternal, text);
  }
}

}  // namespace yoke::cli
