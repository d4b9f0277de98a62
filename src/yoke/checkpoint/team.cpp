#include "yoke/checkpoint/team.h"

#include <charconv>
#include <exception>

#include "yoke/base/error.h"

namespace yoke::checkpoint {

namespace {

struct Told {
  ExitCode code = ExitCode::kOk;
  std::string problem;
  nlohmann::json result;
};

Told read_told(const std::string& text, int rank) {
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  auto has = [&](const char* key) { return json.is_object() && json.contains(key); };
  const bool sound = has("code") && json["code"].is_number_unsigned() && has("problem") &&
                     json["problem"].is_string() &&
                     json["code"] <= static_cast<unsigned>(ExitCode::kVerification);
  if (!sound) throw CommError("unexpected message from rank {} about its part of the checkpoint", rank);
  Told told{static_cast<ExitCode>(json["code"].get<int>()), json["problem"].get<std::string>(), nullptr};
  if (has("result")) told.result = std::move(json["result"]);
  return told;
}

[[noreturn]] void refuse_part(const std::string& why) {
  throw CommError("invalid description of a rank's part of the checkpoint: {}", why);
}

const nlohmann::json& list_in(const nlohmann::json& part, const char* key) {
  if (!part.is_object() || !part.contains(key) || !part[key].is_array())
    refuse_part(fmt::format("no list '{}'", key));
  return part[key];
}

uint64_t bytes_in(const nlohmann::json& object) {
  if (!object.is_object() || !object.contains("bytes") || !object["bytes"].is_number_unsigned())
    refuse_part("no byte count");
  return object["bytes"].get<uint64_t>();
}

std::string text_in(const nlohmann::json& object, const char* key) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_string())
    refuse_part(fmt::format("no text '{}'", key));
  return object[key].get<std::string>();
}

}  // namespace

std::string file_name(const std::string& kind, const Team& team) {
  if (team.size == 1) return kind + ".safetensors";
  return fmt::format("{}-{:05}-of-{:05}.safetensors", kind, team.rank + 1, team.size);
}

std::optional<int> rank_of_file(const std::string& name) {
  size_t of = name.find("-of-");
  size_t dash = of == std::string::npos ? of : name.rfind('-', of - 1);
  if (of == 0 || dash == std::string::npos) return std::nullopt;
  int number = 0;
  auto [end, error] = std::from_chars(name.data() + dash + 1, name.data() + of, number);
  if (error != std::errc() || end != name.data() + of || number < 1) return std::nullopt;
  return number - 1;
}

std::vector<nlohmann::json> Meeting::after(const std::string& what,
                                           const std::function<nlohmann::json()>& work) {
  std::exception_ptr own_error;
  nlohmann::json own = {{"problem", ""}};
  int code = 0;
  try {
    own["result"] = work();
  } catch (const Error& error) {
    own_error = std::current_exception();
    own["problem"] = error.what();
    code = static_cast<int>(error.code());
  } catch (const std::exception& error) {
    own_error = std::current_exception();
    own["problem"] = error.what();
    code = static_cast<int>(ExitCode::kInternal);
  }
  own["code"] = code;
  std::vector<nlohmann::json> results;
  std::optional<Error> first;
  bool peer_failed = false;  // then all ranks report it, whatever else failed on some of them
  int rank = 0;
  // Errors quote paths, which may contain any bytes.
  std::string text = own.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  for (const std::string& one : team_.exchange(fmt::format("checkpoint {} {}", step_, what), text)) {
    Told told = read_told(one, rank);
    const bool worse = told.code == ExitCode::kPeerFailed && !peer_failed;
    if (told.code != ExitCode::kOk && (!first || worse))
      first.emplace(told.code, fmt::format("rank {}: {}", rank, told.problem));
    peer_failed = peer_failed || worse;
    results.push_back(std::move(told.result));
    ++rank;
  }
  if (own_error && (!peer_failed || code == static_cast<int>(ExitCode::kPeerFailed)))
    std::rethrow_exception(own_error);
  if (first && peer_failed) throw CommError("{}", first->what());
  if (first) throw *first;
  return results;
}

nlohmann::json describe_part(const std::vector<format::FileEntry>& files,
                             const std::vector<NamedTensor>& model) {
  nlohmann::json part = {
      {"files", nlohmann::json::array()}, {"tensors", nlohmann::json::array()}, {"bytes", 0}};
  uint64_t bytes = 0;
  for (const format::FileEntry& file : files)
    part["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"digest", file.digest}});
  for (const auto& [name, tensor] : model) {
    part["tensors"].push_back(name);
    bytes += tensor.nbytes();
  }
  part["bytes"] = bytes;
  return part;
}

std::vector<format::FileEntry> files_of_part(const nlohmann::json& part) {
  std::vector<format::FileEntry> files;
  for (const nlohmann::json& file : list_in(part, "files"))
    files.push_back({text_in(file, "name"), bytes_in(file), text_in(file, "digest")});
  return files;
}

std::string index_of_parts(const std::vector<nlohmann::json>& parts) {
  nlohmann::json map = nlohmann::json::object();
  uint64_t bytes = 0;
  for (const nlohmann::json& part : parts) {
    bytes += bytes_in(part);
    const nlohmann::json& files = list_in(part, "files");
    if (files.empty()) refuse_part("no file");
    for (const nlohmann::json& name : list_in(part, "tensors")) {
      if (!name.is_string()) refuse_part("a tensor without a name");
      map[name.get<std::string>()] = text_in(files.front(), "name");
    }
  }
  return nlohmann::json{{"metadata", {{"total_size", bytes}}}, {"weight_map", map}}.dump(2) + "\n";
}

std::vector<NamedTensor> share_of(const std::vector<NamedTensor>& tensors, int rank, int size) {
  uint64_t all = 0, before = 0;
  for (const auto& [name, tensor] : tensors) all += tensor.nbytes();
  std::vector<NamedTensor> own;
  for (const auto& one : tensors) {
    // By its middle, so that a large tensor goes to the rank with most of it.
    double middle = static_cast<double>(before) + static_cast<double>(one.second.nbytes()) / 2;
    before += one.second.nbytes();
    int owner = all == 0 ? 0 : static_cast<int>(middle * size / static_cast<double>(all));
    if (std::min(owner, size - 1) == rank) own.push_back(one);
  }
  return own;
}

}  // namespace yoke::checkpoint
