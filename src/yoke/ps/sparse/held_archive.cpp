// Gradients that wait, for a server that gets a copy of the tables.
#include "yoke/base/error.h"
#include "yoke/ps/sparse/held.h"

namespace yoke::ps::sparse {
namespace {

constexpr int64_t kMostSaved = 1 << 20;  // gradients, and parts of one

struct SavedGradient {
  int64_t worker = 0, life = 0, minibatch = 0;
  int64_t parts = 0, arrived = 0, measure = 0;
  double scale = 1;
};

}  // namespace

void HeldGradients::save(Saver& saver) const {
  saver(static_cast<int64_t>(held_.size()));
  for (const auto& [name, held] : held_) {
    const auto& [worker, life, minibatch] = name;
    saver(SavedGradient{worker, life, minibatch, static_cast<int64_t>(held.parts.size()),
                        static_cast<int64_t>(held.arrived), held.measure ? 1 : 0, held.scale});
    for (size_t i = 0; i < held.parts.size(); ++i) {
      if (!held.parts[i]) continue;
      saver(static_cast<int64_t>(i));
      saver(static_cast<int64_t>(held.parts[i]->table));
      saver(held.parts[i]->keys);
      saver.put_bytes(held.parts[i]->values);
    }
  }
}

void HeldGradients::load(Loader& loader, const std::function<size_t(int table)>& row_bytes) {
  clear();
  int64_t count = 0;
  loader(count);
  if (count < 0 || count > kMostSaved) throw CommError("a copy of tables with {} gradients", count);
  for (; count > 0; --count) {
    SavedGradient saved;
    loader(saved);
    const auto workers = static_cast<int64_t>(bytes_.size());
    if (saved.worker < 0 || saved.worker >= workers || saved.parts < 1 || saved.parts > kMostSaved ||
        saved.arrived < 0 || saved.arrived > saved.parts)
      throw CommError("a copy of tables with a gradient of worker {} in {} parts", saved.worker, saved.parts);
    HeldGradient& held = held_[{static_cast<int>(saved.worker), saved.life, saved.minibatch}];
    held = {};
    held.parts.resize(static_cast<size_t>(saved.parts));
    held.scale = saved.scale;
    held.measure = saved.measure != 0;
    for (; saved.arrived > 0; --saved.arrived) {
      int64_t at = 0, table = 0;
      HeldPart part;
      loader(at);
      loader(table);
      loader(part.keys);
      if (at < 0 || at >= saved.parts || held.parts[static_cast<size_t>(at)])
        throw CommError("a copy of tables with part {} of {}", at, saved.parts);
      part.table = static_cast<int>(table);
      const std::span<const std::byte> values = loader.get_bytes(part.keys.size() * row_bytes(part.table));
      part.values.assign(values.begin(), values.end());
      held.bytes += part.values.size() + part.keys.size() * sizeof(Key);
      held.parts[static_cast<size_t>(at)] = std::move(part);
      ++held.arrived;
    }
    bytes_[static_cast<size_t>(saved.worker)] += held.bytes;
  }
}

}  // namespace yoke::ps::sparse
