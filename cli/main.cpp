// The program `yoke`: runs commands without tensors itself, and executes `yoke-torch` for the rest.
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "cli/program.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace {

std::filesystem::path torch_program() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "yoke-torch";
}

int become_torch_program(const std::vector<std::string>& words) {
  const std::filesystem::path sibling = torch_program();
  std::vector<std::string> all = {"yoke"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> pointers;
  for (std::string& word : all) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(sibling.c_str(), pointers.data());
  throw yoke::ConfigError("{}: {}. It must be in the same folder as `yoke`: run `make build`.",
                          sibling.string(), yoke::describe_errno(errno));
}

}  // namespace

int main(int argc, char** argv) {
  return yoke::cli::run_commands(argc, argv, become_torch_program, torch_program());
}
