#include "yoke/base/error.h"
#include "yoke/plan/collectives/steps.h"

namespace yoke::plan {
namespace {

// Odd ranks are leaves; the lowest set bit of a rank gives its level.
std::vector<int> first_tree(int size) {
  std::vector<int> parent(static_cast<size_t>(size), -1);
  for (int r = 1; r < size; ++r) {
    int bit = r & -r;
    int up = (r ^ bit) | (bit << 1);
    parent[static_cast<size_t>(r)] = up < size ? up : r ^ bit;
  }
  return parent;
}

}  // namespace

DoubleTree double_binary_tree(int size) {
  YOKE_CHECK(size >= 1 && size <= 1 << 29, "a tree of {} ranks", size);
  DoubleTree trees{first_tree(size), std::vector<int>(static_cast<size_t>(size), -1)};
  // The second tree is the first on renamed ranks: mirrored if their number is even, shifted by one if odd,
  // so that an inner node of one tree is a leaf of the other.
  auto renamed = [&](int r) { return size % 2 == 0 ? size - 1 - r : (r + 1) % size; };
  for (int r = 0; r < size; ++r) {
    int up = trees.first[static_cast<size_t>(r)];
    if (up >= 0) trees.second[static_cast<size_t>(renamed(r))] = renamed(up);
  }
  return trees;
}

}  // namespace yoke::plan
