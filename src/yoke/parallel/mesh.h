// Ranks as a grid with named axes: pipeline x data x tensor.
//
// The tensor axis is innermost: it communicates most, and its neighbours are consecutive ranks, which share a
// machine.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace yoke::parallel {

struct Coordinates {
  int pipeline = 0;
  int data = 0;
  int tensor = 0;
  bool operator==(const Coordinates&) const = default;
};

struct Mesh {
  int pipeline = 1;
  int data = 1;
  int tensor = 1;

  int size() const { return pipeline * data * tensor; }
  Coordinates at(int rank) const;
  int rank_of(const Coordinates& place) const;
  bool operator==(const Mesh&) const = default;

  struct Axis {
    const char* name;
    int size;
  };
  std::array<Axis, 3> axes() const { return {{{"pipeline", pipeline}, {"data", data}, {"tensor", tensor}}}; }
};

// "pipeline=2,data=2,tensor=2"; axes of size 1 are omitted, except for a mesh of one rank.
std::string to_string(const Mesh& mesh);
// The inverse. Throws ConfigError that names the problem.
Mesh parse_mesh(const std::string& text);

// The mesh of `ranks` ranks with these axes; data = 0 takes what the others leave. Throws ConfigError if the
// product differs from `ranks`, naming the nearest that fits.
Mesh fit_mesh(int ranks, int64_t pipeline, int64_t data, int64_t tensor);

// The groups of ranks along an axis: ranks that differ in nothing else.
std::vector<std::vector<int>> groups_along(const Mesh& mesh, const std::string& axis);

}  // namespace yoke::parallel
