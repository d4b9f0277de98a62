#include "yoke/metrics/tensorboard.h"

#include <unistd.h>

#include <array>
#include <string>
#include <system_error>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/metrics/event_format.h"

namespace yoke::metrics {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

std::filesystem::path unused_name(const std::filesystem::path& folder, double wall_time) {
  std::error_code none;
  for (int n = 0;; ++n) {
    auto path = folder / fmt::format("events.out.tfevents.{}.{}.{}.{}", static_cast<int64_t>(wall_time),
                                     host_name(), ::getpid(), n);
    if (!std::filesystem::exists(path, none)) return path;
  }
}

std::vector<Scalar> scalars_of(const Record& record) {
  std::vector<Scalar> scalars;
  auto put = [&scalars](const char* tag, std::optional<double> value) {
    if (value) scalars.push_back({tag, static_cast<float>(*value)});
  };
  put("loss", record.loss);
  put("lr", record.lr);
  put("epoch", record.epoch);
  put("samples_per_s", record.samples_per_s);
  put("tokens_per_s", record.tokens_per_s);
  put("grad_norm", record.grad_norm);
  put("loss_scale", record.loss_scale);
  put("noise_scale", record.noise_scale);
  put("comm_seconds", record.comm_seconds);
  put("accuracy", record.accuracy);
  put("eval_loss", record.eval_loss);
  put("memory_bytes", record.memory_bytes);
  if (record.split) {
    put("seconds/data", record.split->data);
    put("seconds/forward", record.split->forward);
    put("seconds/backward", record.split->backward);
    put("seconds/communication", record.split->communication);
    put("seconds/update", record.split->update);
    put("seconds/other", record.split->other);
  }
  return scalars;
}

}  // namespace

TensorBoard::TensorBoard(std::filesystem::path folder, Clock clock)
    : folder_(std::move(folder)), clock_(std::move(clock)) {}

void TensorBoard::start(const RunInfo& info) {
  double now = clock_();
  file_.emplace(unused_name(folder_, now));
  std::string head = frame_event(encode_version_event(now));
  int64_t next_step = info.first_step == 0 ? 0 : info.first_step + 1;
  file_->write(head + frame_event(encode_restart_event(now, next_step)));
}

void TensorBoard::write(const Record& record) {
  YOKE_CHECK(file_.has_value(), "TensorBoard in {}: write before start", folder_.string());
  file_->keep(frame_event(encode_scalar_event(clock_(), record.step, scalars_of(record))));
}

}  // namespace yoke::metrics
