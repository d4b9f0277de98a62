#include "yoke/data/formats/names.h"

#include <algorithm>
#include <iterator>

#include "yoke/base/error.h"
#include "yoke/data/options.h"

namespace yoke::data {
namespace {

constexpr const char* kBuiltIn[] = {"fashion_mnist", "mnist",  "cifar10", "cifar100",
                                    "images",        "tokens", "libsvm",  "synthetic"};

std::vector<std::string>& names() {
  static std::vector<std::string> all(std::begin(kBuiltIn), std::end(kBuiltIn));
  return all;
}

}  // namespace

std::vector<std::string> data_names() {
  return names();
}

bool is_built_in_data(const std::string& name) {
  return std::find(std::begin(kBuiltIn), std::end(kBuiltIn), name) != std::end(kBuiltIn);
}

bool reads_pictures(const std::string& name) {
  return name == "images" || !is_built_in_data(name);
}

void add_data_name(const std::string& name) {
  if (name.empty() || std::find(names().begin(), names().end(), name) != names().end())
    throw ConfigError("register_data(\"{}\"): the name is {}; choose another.", name,
                      name.empty() ? "empty" : "taken");
  names().push_back(name);
}

}  // namespace yoke::data
