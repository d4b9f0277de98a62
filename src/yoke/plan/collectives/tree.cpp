// Double binary tree: each of two trees carries half of the data, in pipelined pieces.
#include <algorithm>

#include "yoke/plan/collectives/phases.h"

namespace yoke::plan {
namespace {

// One rank's position in a tree.
struct Place {
  int parent = -1;
  std::vector<int> children;         // ascending
  std::vector<int> children_height;  // of the subtree below each
  int height = 0;
  int depth = 0;
  int root_height = 0;
};

std::vector<int> heights(const std::vector<int>& parent) {
  std::vector<int> height(parent.size(), 0);
  for (size_t r = 0; r < parent.size(); ++r) {
    int distance = 0;
    for (int up = parent[r]; up >= 0; up = parent[static_cast<size_t>(up)]) {
      int& value = height[static_cast<size_t>(up)];
      value = std::max(value, ++distance);
    }
  }
  return height;
}

Place place_of(int rank, const std::vector<int>& parent) {
  std::vector<int> height = heights(parent);
  Place place;
  place.parent = parent[static_cast<size_t>(rank)];
  place.height = height[static_cast<size_t>(rank)];
  for (int up = place.parent; up >= 0; up = parent[static_cast<size_t>(up)]) ++place.depth;
  place.root_height = *std::max_element(height.begin(), height.end());
  for (size_t r = 0; r < parent.size(); ++r) {
    if (parent[r] != rank) continue;
    place.children.push_back(static_cast<int>(r));
    place.children_height.push_back(height[r]);
  }
  return place;
}

// A rank forwards a piece in the round after the slowest child's arrived: piece k in round height + k.
void up(StepWriter& out, const Place& place, const Blocks& pieces) {
  for (size_t k = 0; k < pieces.size(); ++k) {
    int behind = static_cast<int>(k);
    for (size_t c = 0; c < place.children.size(); ++c)
      out.combine(place.children_height[c] + behind, place.children[c], pieces[k]);
    if (place.parent >= 0) out.send(place.height + behind, place.parent, pieces[k]);
  }
}

// The root sends piece k in round first + k.
void down(StepWriter& out, int first, const Place& place, const Blocks& pieces) {
  for (size_t k = 0; k < pieces.size(); ++k) {
    int sent = first + place.depth + static_cast<int>(k);
    if (place.parent >= 0) out.receive(sent - 1, place.parent, pieces[k]);
    for (int child : place.children) out.send(sent, child, pieces[k]);
  }
}

enum class Direction { kUp, kDown, kBoth };

void both_trees(const CollectiveRequest& request, const DoubleTree& trees, Direction direction,
                StepWriter& out) {
  Blocks halves = equal_blocks(whole(request), 2);
  for (int t = 0; t < 2; ++t) {
    Place place = place_of(request.rank, t == 0 ? trees.first : trees.second);
    Blocks pieces = pieces_of(halves[static_cast<size_t>(t)], request.piece);
    if (direction != Direction::kDown) up(out, place, pieces);
    // A piece turns around at the root while later ones are still on their way up.
    if (direction != Direction::kUp)
      down(out, direction == Direction::kBoth ? place.root_height : 0, place, pieces);
  }
}

// The root is above two trees of all others: it handles each element once, they at most once in each
// direction.
DoubleTree below(int root, int size) {
  auto all = static_cast<size_t>(size);
  DoubleTree trees{std::vector<int>(all, -1), std::vector<int>(all, -1)};
  if (size == 1) return trees;
  DoubleTree others = double_binary_tree(size - 1);
  auto rank_of = [&](int other) { return (root + 1 + other) % size; };
  for (int i = 0; i < size - 1; ++i) {
    auto rank = static_cast<size_t>(rank_of(i));
    int first = others.first[static_cast<size_t>(i)];
    int second = others.second[static_cast<size_t>(i)];
    trees.first[rank] = first < 0 ? root : rank_of(first);
    trees.second[rank] = second < 0 ? root : rank_of(second);
  }
  return trees;
}

}  // namespace

void tree_all_reduce_form(const CollectiveRequest& request, StepWriter& out) {
  both_trees(request, double_binary_tree(request.size), Direction::kBoth, out);
}

void tree_reduce_form(const CollectiveRequest& request, StepWriter& out) {
  both_trees(request, below(request.root, request.size), Direction::kUp, out);
}

void tree_broadcast_form(const CollectiveRequest& request, StepWriter& out) {
  both_trees(request, below(request.root, request.size), Direction::kDown, out);
}

// Nothing to split: one tree.
void tree_barrier_form(const CollectiveRequest& request, StepWriter& out) {
  Place place = place_of(request.rank, double_binary_tree(request.size).first);
  Blocks nothing(1);
  up(out, place, nothing);
  down(out, place.root_height, place, nothing);
}

}  // namespace yoke::plan
