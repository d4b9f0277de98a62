// `--mesh` of commands that show the position of ranks on the axes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "yoke/parallel/mesh.h"

namespace yoke::cli {

// {axes[{name, size}], ranks[{rank, coordinates{}}]}
nlohmann::json to_json(const parallel::Mesh& mesh);

// One line per rank.
void print_mesh(const parallel::Mesh& mesh);

}  // namespace yoke::cli
