// Memory of a group's rounds that outlives them: fresh pages cost as much time as the bytes that arrive in
// them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace yoke::collab {

// One thread.
class GroupMemory {
 public:
  // `count` floats of any value, as number `index` of a round. They are valid until that number is taken
  // again.
  std::span<float> take(size_t index, size_t count) {
    if (index >= blocks_.size()) blocks_.resize(index + 1);
    Block& block = blocks_[index];
    if (block.count < count || block.count > 2 * count)
      block = {std::make_unique_for_overwrite<float[]>(count), count};
    return {block.values.get(), count};
  }

 private:
  struct Block {
    std::unique_ptr<float[]> values;
    size_t count = 0;
  };
  std::vector<Block> blocks_;
};

}  // namespace yoke::collab
