#include "yoke/comm/summation/announcement.h"

#include <algorithm>

#include "yoke/base/error.h"

namespace yoke::comm {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 40;

}  // namespace

Announcement::Announcement(const Buffer& data, ReduceOp op, const OpOptions& options)
    : type(static_cast<uint8_t>(data.type)),
      reduce(static_cast<uint8_t>(op)),
      count(data.count),
      timeout(options.timeout) {
  options.name.copy(name.data(), std::min(options.name.size(), name.size() - 1));
}

void Announcement::check() const {
  const bool known =
      type <= static_cast<uint8_t>(DataType::kInt64) && reduce <= static_cast<uint8_t>(ReduceOp::kMean);
  if (last > 1 || !known || count < 0 || count > kMostElements || !(timeout >= 0) || name.back() != 0)
    throw CommError(
        "worker 0 announced {} elements of type {}, reduction {}, timeout {}: not a summation. Run the same "
        "version of Yoke on all machines.",
        count, type, reduce, timeout);
}

}  // namespace yoke::comm
