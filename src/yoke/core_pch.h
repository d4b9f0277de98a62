// Precompiled for the sources without LibTorch: what is slow to parse and used by most.
#pragma once

#include <fmt/core.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>
