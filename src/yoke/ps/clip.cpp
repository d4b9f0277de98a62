#include "yoke/ps/clip.h"

#include <algorithm>
#include <cmath>

#include "yoke/base/error.h"
#include "yoke/kernels/clip_factor.h"

namespace yoke::ps {

void Clipping::await(int64_t number, double clip_norm) {
  awaited_.push_back({number, clip_norm, std::vector<std::optional<double>>(servers_)});
}

std::optional<ClipHead> Clipping::add(int server, const SquareHead& head, bool again) {
  auto index = static_cast<size_t>(server);
  auto awaited = std::find_if(awaited_.begin(), awaited_.end(),
                              [&](const Awaited& one) { return one.number == head.number; });
  if (index >= servers_ || awaited == awaited_.end() || (awaited->squares[index] && !again) ||
      head.square < 0)
    throw CommError("unexpected sum of squares {1} from server {0} for update {2}", server, head.square,
                    head.number);
  awaited->squares[index] = head.square;
  double sum = 0;
  for (const std::optional<double>& square : awaited->squares) {
    if (!square) return std::nullopt;
    sum += *square;
  }
  ClipHead clip{head.number, kernels::clip_factor(std::sqrt(sum), awaited->clip_norm)};
  awaited_.erase(awaited);
  return clip;
}

}  // namespace yoke::ps
