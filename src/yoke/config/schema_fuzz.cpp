// Any bytes as a configuration file, and as a list of tables: an error or a configuration, never a crash.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "yoke/base/error.h"
#include "yoke/config/schema.h"
#include "yoke/config/tables.h"

namespace {

struct Options {
  bool flag = false;
  int64_t whole = 1;
  double real = 0.5;
  std::string choice = "a";
  std::vector<int64_t> list;
};

void describe(yoke::config::Fields& f, Options& o) {
  f.boolean("flag", o.flag, "");
  f.integer("whole", o.whole, "");
  f.number("real", o.real, "");
  f.choice("choice", o.choice, {"a", "b"}, "");
  f.integers("list", o.list, "");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Options options;
  yoke::config::Schema schema;
  schema.section("s", options);
  try {
    schema.read_text({reinterpret_cast<const char*>(data), size}, "fuzz.toml");
    std::string problem;
    yoke::config::read_tables<Options>({reinterpret_cast<const char*>(data), size}, problem);
  } catch (const yoke::Error&) {
  }
  return 0;
}
