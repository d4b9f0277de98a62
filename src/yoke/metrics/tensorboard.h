// Records as TensorBoard scalars.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "yoke/base/clock.h"
#include "yoke/metrics/append_file.h"
#include "yoke/metrics/sink.h"

namespace yoke::metrics {

// Writes events.out.tfevents.<unix>.<host>.<pid>.<n> into a folder, each record immediately. A resumed run
// writes a new file, which makes TensorBoard discard the repeated steps.
class TensorBoard : public Sink {
 public:
  using Clock = std::function<double()>;  // seconds since 1970

  explicit TensorBoard(std::filesystem::path folder, Clock clock = wall_seconds);

  void start(const RunInfo& info) override;
  void write(const Record& record) override;

  // Requires start().
  const std::filesystem::path& path() const { return file_->path(); }

 private:
  std::filesystem::path folder_;
  Clock clock_;
  std::optional<AppendFile> file_;
};

}  // namespace yoke::metrics
