#include "yoke/base/cpu.h"

#include <fmt/core.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "yoke/base/text.h"

namespace yoke {
namespace {

struct Part {
  int implementer;
  int part;
  const char* name;
};

// Servers, laptops and boards that train; MIDR_EL1 as in util-linux's lscpu.
constexpr Part kParts[] = {
    {0x41, 0xd03, "Cortex-A53"},   {0x41, 0xd04, "Cortex-A35"},   {0x41, 0xd05, "Cortex-A55"},
    {0x41, 0xd07, "Cortex-A57"},   {0x41, 0xd08, "Cortex-A72"},   {0x41, 0xd09, "Cortex-A73"},
    {0x41, 0xd0a, "Cortex-A75"},   {0x41, 0xd0b, "Cortex-A76"},   {0x41, 0xd0c, "Neoverse-N1"},
    {0x41, 0xd0d, "Cortex-A77"},   {0x41, 0xd40, "Neoverse-V1"},  {0x41, 0xd41, "Cortex-A78"},
    {0x41, 0xd42, "Cortex-A78AE"}, {0x41, 0xd44, "Cortex-X1"},    {0x41, 0xd46, "Cortex-A510"},
    {0x41, 0xd47, "Cortex-A710"},  {0x41, 0xd48, "Cortex-X2"},    {0x41, 0xd49, "Neoverse-N2"},
    {0x41, 0xd4a, "Neoverse-E1"},  {0x41, 0xd4b, "Cortex-A78C"},  {0x41, 0xd4d, "Cortex-A715"},
    {0x41, 0xd4e, "Cortex-X3"},    {0x41, 0xd4f, "Neoverse-V2"},  {0x41, 0xd80, "Cortex-A520"},
    {0x41, 0xd81, "Cortex-A720"},  {0x41, 0xd82, "Cortex-X4"},    {0x41, 0xd83, "Neoverse-V3AE"},
    {0x41, 0xd84, "Neoverse-V3"},  {0x41, 0xd85, "Cortex-X925"},  {0x41, 0xd87, "Cortex-A725"},
    {0x41, 0xd8e, "Neoverse-N3"},  {0x43, 0x0a1, "ThunderX"},     {0x43, 0x0af, "ThunderX2"},
    {0x43, 0x0b8, "ThunderX3"},    {0x46, 0x001, "A64FX"},        {0x48, 0xd01, "TaiShan-v110"},
    {0x48, 0xd02, "TaiShan-v120"}, {0x4e, 0x003, "Denver 2"},     {0x4e, 0x004, "Carmel"},
    {0x4e, 0x010, "Olympus"},      {0x50, 0x000, "X-Gene"},       {0x51, 0x001, "Oryon"},
    {0x51, 0xc00, "Falkor"},       {0x61, 0x022, "Apple M1"},     {0x61, 0x023, "Apple M1"},
    {0x61, 0x024, "Apple M1 Pro"}, {0x61, 0x025, "Apple M1 Pro"}, {0x61, 0x028, "Apple M1 Max"},
    {0x61, 0x029, "Apple M1 Max"}, {0x61, 0x032, "Apple M2"},     {0x61, 0x033, "Apple M2"},
    {0x6d, 0xd49, "Cobalt 100"},   {0xc0, 0xac3, "Ampere-1"},     {0xc0, 0xac4, "Ampere-1a"},
    {0xc0, 0xac5, "Ampere-1b"},
};

// The first value of `key`; empty if missing.
std::string value_of(std::string_view cpuinfo, std::string_view key) {
  for (const std::string& line : split(cpuinfo, '\n')) {
    size_t colon = line.find(':');
    if (colon != std::string::npos && trim(line.substr(0, colon)) == key) return trim(line.substr(colon + 1));
  }
  return "";
}

}  // namespace

std::string cpu_name_of(std::string_view cpuinfo) {
  std::string name = value_of(cpuinfo, "model name");
  if (!name.empty()) return name;
  std::string implementer = value_of(cpuinfo, "CPU implementer"), part = value_of(cpuinfo, "CPU part");
  if (part.empty()) return "unknown processor";
  long maker = std::strtol(implementer.c_str(), nullptr, 16), number = std::strtol(part.c_str(), nullptr, 16);
  for (const Part& known : kParts)
    if (known.implementer == maker && known.part == number) return known.name;
  return fmt::format("Arm processor (implementer {}, part {})", implementer, part);
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  return cpu_name_of(std::string(std::istreambuf_iterator<char>(info), {}));
}

}  // namespace yoke
