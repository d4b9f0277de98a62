#include "yoke/cluster/etcd.h"

#include <openssl/evp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::cluster {
namespace {

constexpr double kOneMember = 0.7;  // seconds
constexpr size_t kMostBytes = size_t{1} << 20;

std::string to_base64(const std::string& text) {
  std::string coded(4 * ((text.size() + 2) / 3) + 1, '\0');
  int length =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(coded.data()),
                      reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  coded.resize(static_cast<size_t>(length));
  return coded;
}

std::string from_base64(const std::string& coded) {
  std::string text(coded.size(), '\0');
  int length =
      EVP_DecodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(coded.data()), static_cast<int>(coded.size()));
  if (length < 0) throw CommError("etcd: a value that is not base64");
  const auto padding = std::min<size_t>(2, static_cast<size_t>(std::ranges::count(coded, '=')));
  text.resize(static_cast<size_t>(length) - std::min(padding, static_cast<size_t>(length)));
  return text;
}

void wait_for(int fd, short events, Deadline deadline) {
  pollfd one{fd, events, 0};
  if (::poll(&one, 1, deadline.left_ms()) == 0 && deadline.passed())
    throw CommError("no answer within {:.1f} s", deadline.limit());
}

void send_all(int fd, std::string_view text, Deadline deadline) {
  while (!text.empty()) {
    ssize_t sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0)
      text.remove_prefix(static_cast<size_t>(sent));
    else if (errno == EAGAIN)
      wait_for(fd, POLLOUT, deadline);
    else if (errno != EINTR)
      throw CommError("{}", describe_errno(errno));
  }
}

std::string receive_all(int fd, Deadline deadline) {
  std::string text;
  std::array<char, 4096> piece;
  for (;;) {
    ssize_t got = ::recv(fd, piece.data(), piece.size(), MSG_DONTWAIT);
    if (got == 0) return text;
    if (got > 0)
      text.append(piece.data(), static_cast<size_t>(got));
    else if (errno == EAGAIN)
      wait_for(fd, POLLIN, deadline);
    else if (errno != EINTR)
      throw CommError("{}", describe_errno(errno));
    if (text.size() > kMostBytes) throw CommError("an answer of more than {} bytes", kMostBytes);
  }
}

// HTTP/1.0: the answer is not chunked and ends with the connection.
std::string post(const net::Address& member, const std::string& path, const std::string& body,
                 Deadline deadline) {
  net::Descriptor socket = net::connect_to(member, deadline);
  send_all(socket.get(),
           fmt::format("POST {} HTTP/1.0\r\nHost: {}\r\nContent-Type: application/json\r\n"
                       "Content-Length: {}\r\n\r\n{}",
                       path, member.text(), body.size(), body),
           deadline);
  return body_of(receive_all(socket.get(), deadline));
}

nlohmann::json parsed(const std::string& text) {
  nlohmann::json answer = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) throw CommError("etcd: an answer that is not a JSON object");
  return answer;
}

// The gateway writes 64-bit numbers as text and omits those that are 0.
int64_t number(const nlohmann::json& object, const char* key) {
  auto found = object.find(key);
  if (found == object.end()) return 0;
  if (found->is_number_integer()) return found->get<int64_t>();
  const std::string text = found->is_string() ? found->get<std::string>() : "";
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size())
    throw CommError("etcd: '{}' is not a number", key);
  return value;
}

std::optional<Etcd::Value> first_of(const nlohmann::json& range) {
  auto list = range.find("kvs");
  if (list == range.end()) return std::nullopt;
  if (!list->is_array() || list->empty() || !list->front().is_object())
    throw CommError("etcd: 'kvs' is not a list of values");
  const nlohmann::json& one = list->front();
  const std::string coded = one.contains("value") && one["value"].is_string() ? one["value"] : "";
  return Etcd::Value{from_base64(coded), number(one, "lease")};
}

nlohmann::json put_request(const std::string& key, const std::string& text, int64_t lease) {
  return {{"key", to_base64(key)}, {"value", to_base64(text)}, {"lease", std::to_string(lease)}};
}

}  // namespace

std::string body_of(std::string_view response) {
  const size_t line = response.find("\r\n");
  const size_t head = response.find("\r\n\r\n");
  if (!response.starts_with("HTTP/1.") || head == std::string_view::npos)
    throw CommError("not an answer of HTTP");
  const std::string_view status = response.substr(0, line);
  std::string body(response.substr(head + 4));
  if (status.find(" 200") == std::string_view::npos)
    throw CommError("{}: {}", std::string(status.substr(0, 100)), body.substr(0, 200));
  return body;
}

Etcd::Etcd(std::vector<net::Address> members) : members_(std::move(members)) {
  YOKE_CHECK(!members_.empty(), "etcd without members");
}

std::string Etcd::ask(const std::string& path, const std::string& body, Deadline deadline) {
  std::vector<std::string> errors;
  for (size_t tried = 0; tried < members_.size(); ++tried) {
    try {
      return post(member(), path, body, deadline.sooner(kOneMember));
    } catch (const Error& error) {
      errors.push_back(fmt::format("{}: {}", member().text(), error.what()));
      current_ = (current_ + 1) % members_.size();
    }
  }
  throw Error(ExitCode::kRendezvous,
              fmt::format("etcd does not answer ({}). Next: `etcdctl --endpoints {} endpoint health`",
                          join(errors, "; "), member().text()));
}

std::optional<Etcd::Value> Etcd::get(const std::string& key, Deadline deadline) {
  const nlohmann::json question = {{"key", to_base64(key)}};
  return read_range(ask("/v3/kv/range", question.dump(), deadline));
}

std::optional<Etcd::Value> read_range(const std::string& body) {
  return first_of(parsed(body));
}

Etcd::Value Etcd::create(const std::string& key, const std::string& text, int64_t lease, Deadline deadline) {
  const std::string coded = to_base64(key);
  const nlohmann::json question = {
      {"compare", {{{"key", coded}, {"target", "CREATE"}, {"createRevision", "0"}}}},
      {"success", {{{"requestPut", put_request(key, text, lease)}}}},
      {"failure", {{{"requestRange", {{"key", coded}}}}}}};
  nlohmann::json answer = parsed(ask("/v3/kv/txn", question.dump(), deadline));
  if (answer.value("succeeded", false)) return {text, lease};
  try {
    std::optional<Value> value = first_of(answer.at("responses").at(0).at("response_range"));
    if (value) return *value;
  } catch (const nlohmann::json::exception&) {
    // said below
  }
  throw CommError("etcd: a transaction without a result");
}

void Etcd::put(const std::string& key, const std::string& text, int64_t lease, Deadline deadline) {
  ask("/v3/kv/put", put_request(key, text, lease).dump(), deadline);
}

int64_t Etcd::grant(int seconds, Deadline deadline) {
  const nlohmann::json question = {{"TTL", seconds}};
  int64_t lease = number(parsed(ask("/v3/lease/grant", question.dump(), deadline)), "ID");
  if (lease == 0) throw CommError("etcd: no lease was granted");
  return lease;
}

bool Etcd::keep(int64_t lease, Deadline deadline) {
  const nlohmann::json question = {{"ID", std::to_string(lease)}};
  nlohmann::json answer = parsed(ask("/v3/lease/keepalive", question.dump(), deadline));
  return answer.contains("result") && answer["result"].is_object() && number(answer["result"], "TTL") > 0;
}

void Etcd::revoke(int64_t lease, Deadline deadline) {
  const nlohmann::json question = {{"ID", std::to_string(lease)}};
  ask("/v3/lease/revoke", question.dump(), deadline);
}

}  // namespace yoke::cluster
