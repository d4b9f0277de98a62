#include "yoke/metrics/trace.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "yoke/base/error.h"
#include "yoke/base/log.h"
#include "yoke/metrics/append_file.h"

namespace yoke::metrics {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;

std::string quote(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string metadata(const char* what, int64_t pid, uint32_t tid, const std::string& args) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}})", what, pid, tid, args);
}

// Written under a temporary name until it is complete.
class PartialFile {
 public:
  explicit PartialFile(std::filesystem::path path) : path_(std::move(path)), file_(begin(path_)) {}
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile() {
    std::error_code none;
    if (!done_) std::filesystem::remove(temporary(path_), none);
  }
  void write(std::string_view piece) { file_.write(piece); }
  void publish() {
    std::error_code error;
    std::filesystem::rename(temporary(path_), path_, error);
    if (error) throw ConfigError("{}: cannot rename to: {}.", path_.string(), error.message());
    done_ = true;
  }

 private:
  static std::filesystem::path temporary(const std::filesystem::path& path) {
    return path.string() + ".part";
  }
  static AppendFile begin(const std::filesystem::path& path) {
    std::error_code none;
    std::filesystem::remove(temporary(path), none);
    return AppendFile(temporary(path));
  }

  std::filesystem::path path_;
  AppendFile file_;
  bool done_ = false;
};

}  // namespace

Trace::Trace(std::filesystem::path path, TraceOptions options) : path_(std::move(path)), options_(options) {
  if (options.zero > 0) zero_ = options.zero;
}

uint32_t Trace::number_of(const std::string& text) {
  return numbers_.try_emplace(text, static_cast<uint32_t>(numbers_.size())).first->second;
}

void Trace::add(const Span& span) {
  if (!std::isfinite(span.start) || !std::isfinite(span.duration)) return;
  std::lock_guard lock(mutex_);
  if (static_cast<int64_t>(events_.size()) >= options_.most_events) {
    ++dropped_;
    return;
  }
  uint32_t lane = number_of(span.lane);
  lanes_.try_emplace(lane, static_cast<uint32_t>(lanes_.size()));
  events_.push_back(
      {span.start - zero_, span.duration, number_of(span.name), number_of(span.category), lane});
}

int64_t Trace::dropped() const {
  std::lock_guard lock(mutex_);
  return dropped_;
}

void Trace::write(const Record& record) {
  std::lock_guard lock(mutex_);
  double now = now_seconds() - zero_;
  for (auto [name, value] : {std::pair{"loss", record.loss}, std::pair{"samples/s", record.samples_per_s}}) {
    // Counters are few, one a record: they do not count against the limit.
    if (std::isfinite(value)) events_.push_back({now, value, number_of(name), 0, kCounter});
  }
}

void Trace::append_event(std::string& out, const Event& event, const std::vector<std::string>& quoted) const {
  double microseconds = event.start * 1e6;
  if (event.lane == kCounter) {
    out += fmt::format(R"(,
{{"ph":"C","name":{},"pid":{},"ts":{:.3f},"args":{{"value":{}}}}})",
                       quoted[event.name], options_.rank, microseconds, nlohmann::json(event.value).dump());
    return;
  }
  out += fmt::format(R"(,
{{"ph":"X","name":{},"cat":{},"ts":{:.3f},"dur":{:.3f},"pid":{},"tid":{}}})",
                     quoted[event.name], quoted[event.category], microseconds, event.value * 1e6,
                     options_.rank, lanes_.at(event.lane));
}

// Failing to write a trace does not end the run.
void Trace::finish() {
  std::lock_guard lock(mutex_);
  try {
    write_file();
  } catch (const ConfigError& error) {
    log::error("{} This rank's trace is lost.", error.what());
  }
}

void Trace::write_file() const {
  std::vector<std::string> quoted(numbers_.size());
  for (const auto& [text, number] : numbers_) quoted[number] = quote(text);

  PartialFile file(path_);
  std::string out = fmt::format(
      R"({{"displayTimeUnit":"ms","distributedInfo":{{"rank":{},"world_size":{}}},"droppedEvents":{},"traceEvents":[
)",
      options_.rank, options_.world_size, dropped_);
  out += metadata("process_name", options_.rank, 0, fmt::format(R"("name":"rank {}")", options_.rank));
  for (const auto& [name, tid] : lanes_) {
    out += ",\n" + metadata("thread_name", options_.rank, tid, "\"name\":" + quoted[name]);
    out += ",\n" + metadata("thread_sort_index", options_.rank, tid, fmt::format("\"sort_index\":{}", tid));
  }
  for (const Event& event : events_) {
    append_event(out, event, quoted);
    if (out.size() < kChunkBytes) continue;
    file.write(out);
    out.clear();
  }
  file.write(out + "\n]}\n");
  file.publish();
  if (dropped_ > 0) {
    log::warn(
        "{}: contains the first {} events; {} later ones were dropped. Trace fewer steps to see all events.",
        path_.string(), events_.size(), dropped_);
  }
}

}  // namespace yoke::metrics
