#include "cli/lab_devices.h"

#include "yoke/base/error.h"

namespace yoke::cli {

const std::vector<KnownDevice>& known_devices() {
  static const std::vector<KnownDevice> devices = {{"K80", 2014, 2.8e12, 2.8e12, 240e9, 12e9, false},
                                                   {"M60", 2015, 4.8e12, 4.8e12, 160e9, 8e9, false},
                                                   {"P100", 2016, 10.6e12, 10.6e12, 732e9, 16e9, false},
                                                   {"V100", 2017, 15.7e12, 125e12, 900e9, 16e9, true},
                                                   {"A100", 2020, 19.5e12, 312e12, 2.04e12, 80e9, true},
                                                   {"H100", 2022, 67e12, 989e12, 3.35e12, 80e9, true},
                                                   {"H200", 2023, 67e12, 989e12, 4.8e12, 141e9, true}};
  return devices;
}

const KnownDevice& known_device(const std::string& option, const std::string& name) {
  std::string known;
  for (const KnownDevice& device : known_devices()) {
    if (name == device.name) return device;
    known += std::string(known.empty() ? "" : " ") + device.name;
  }
  throw ConfigError("{} {}: unknown. Accepted: {}.", option, name, known);
}

}  // namespace yoke::cli
