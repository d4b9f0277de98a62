// Options of labs as plain text, listed once with their defaults for both settings.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace yoke::cli {

struct LabOption {
  std::string flag;   // "--workers"
  std::string value;  // default
  std::string quick;  // default with --quick
  std::string help;
};

// "1 epoch", "3 epochs", "0.5 epochs": `count` as typed.
std::string counted(const std::string& count, const std::string& one);

// What was typed, or the default of the setting. The readers throw ConfigError naming option, value and what
// is accepted.
class LabValues {
 public:
  LabValues(const std::vector<LabOption>& options, const std::map<std::string, std::string>& typed,
            bool quick);

  const std::string& text(const std::string& flag) const;
  int integer(const std::string& flag, int least, int most) const;
  std::vector<int> integers(const std::string& flag, int least, int most) const;  // at least one
  double number(const std::string& flag, double least, double most) const;
  std::vector<double> numbers(const std::string& flag, double least, double most) const;
  double duration(const std::string& flag) const;
  double rate(const std::string& flag) const;  // bytes per second, above 0
  std::vector<int64_t> sizes(const std::string& flag) const;
  std::vector<std::string> words(const std::string& flag) const;

 private:
  std::map<std::string, std::string> values_;
};

// Adds `options` to `command`; what is typed goes to `typed`.
void add_lab_options(CLI::App& command, const std::vector<LabOption>& options,
                     std::map<std::string, std::string>& typed);

}  // namespace yoke::cli
