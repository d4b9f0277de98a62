#include "yoke/checkpoint/team.h"

#include <charconv>
#include <exception>

#include "yoke/base/error.h"

namespace yoke::checkpoint {

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
  int rank = 0;
  for (const std::string& text : team_.exchange(fmt::format("checkpoint {} {}", step_, what), own.dump())) {
    nlohmann::json told = nlohmann::json::parse(text);
    if (told.at("code") != 0 && !first)
      first.emplace(static_cast<ExitCode>(told.at("code").get<int>()),
                    fmt::format("rank {}: {}", rank, told.at("problem").get<std::string>()));
    results.push_back(told.value("result", nlohmann::json()));
    ++rank;
  }
  if (own_error) std::rethrow_exception(own_error);
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
  for (const nlohmann::json& file : part.at("files"))
    files.push_back({file.at("name"), file.at("bytes"), file.at("digest")});
  return files;
}

std::string index_of_parts(const std::vector<nlohmann::json>& parts) {
  nlohmann::json map = nlohmann::json::object();
  uint64_t bytes = 0;
  for (const nlohmann::json& part : parts) {
    bytes += part.at("bytes").get<uint64_t>();
    for (const nlohmann::json& name : part.at("tensors"))
      map[name.get<std::string>()] = part.at("files").at(0).at("name");
  }
  return nlohmann::json{{"metadata", {{"total_size", bytes}}}, {"weight_map", map}}.dump(2) + "\n";
}

std::vector<NamedTensor> share_of(const std::vector<NamedTensor>& tensors, int rank, int size) {
  uint64_t all = 0, before = 0;
  for (const auto& [name, tensor] : tensors) all += tensor.nbytes();
  std::vector<NamedTensor> own;
  for (const auto& one : tensors) {
    // By its middle, so that a large one goes to whom most of it falls.
    double middle = static_cast<double>(before) + static_cast<double>(one.second.nbytes()) / 2;
    before += one.second.nbytes();
    int owner = all == 0 ? 0 : static_cast<int>(middle * size / static_cast<double>(all));
    if (std::min(owner, size - 1) == rank) own.push_back(one);
  }
  return own;
}

}  // namespace yoke::checkpoint
