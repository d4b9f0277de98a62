#include "yoke/cluster/job_contact.h"

#include <system_error>

#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/base/log.h"
#include "yoke/cluster/identity.h"
#include "yoke/cluster/session_wire.h"

namespace yoke::cluster {
namespace {

constexpr size_t kMostRanks = 1'000'000;

net::Protection protection_of(const std::string& text) {
  for (net::Protection one :
       {net::Protection::kIntegrity, net::Protection::kEncrypted, net::Protection::kNone})
    if (text == net::to_string(one)) return one;
  throw ConfigError("a job's contact file with protection '{}': expected integrity, encrypted or none.",
                    text);
}

}  // namespace

std::string to_text(const JobAddress& address) {
  nlohmann::json text = {{"endpoint", address.endpoint},
                         {"job_id", address.job_id},
                         {"generation", address.generation},
                         {"protection", address.protection}};
  return text.dump(2) + "\n";
}

JobAddress parse_job_address(const std::string& text) {
  try {
    nlohmann::json json = nlohmann::json::parse(text);
    JobAddress address;
    json.at("endpoint").get_to(address.endpoint);
    json.at("job_id").get_to(address.job_id);
    json.at("generation").get_to(address.generation);
    json.at("protection").get_to(address.protection);
    protection_of(address.protection);
    return address;
  } catch (const nlohmann::json::exception&) {
    throw ConfigError("this is not a job's contact file. Give the folder of a run that is running.");
  }
}

JobBeacon::JobBeacon(std::filesystem::path file, const JobAddress& address, const net::Secret& secret)
    : file_(std::move(file)) {
  try {
    key_ = std::make_unique<KeyGiver>(key_address(address.job_id, address.generation), secret);
    std::filesystem::create_directories(file_.parent_path());
    write_file_atomically(file_, to_text(address));
  } catch (const std::exception& error) {
    log::warn("the job runs, but `yoke ps` cannot find it: {}", error.what());
  }
}

JobBeacon::~JobBeacon() {
  std::error_code ignored;
  std::filesystem::remove(file_, ignored);
}

struct JobContact::Impl {
  JobAddress address;
  std::unique_ptr<net::Connection> connection;
  uint64_t next = 1;

  control::Note ask(const nlohmann::json& head, std::string_view value, Deadline deadline) {
    net::FrameHeader header;
    header.type = net::FrameType::kRequest;
    header.context = ++next;
    connection->post_copy(header, control::encode(head, value));
    connection->flush_all(deadline);
    for (;;) {
      net::FrameHeader got;
      std::vector<std::byte> bytes = connection->receive_frame(got, deadline);
      if (got.type != net::FrameType::kReply) continue;  // heartbeats, and why the job ends
      control::Note note = control::decode(bytes);
      if (note.head.contains("closing")) throw CommError("the job has ended");
      if (got.context != next) continue;
      if (note.head.contains("error")) throw CommError("{}", control::text(note.head, "error", 16 << 10));
      return note;
    }
  }
};

JobContact JobContact::find(const std::filesystem::path& where, Deadline deadline) {
  std::filesystem::path file = std::filesystem::is_directory(where) ? where / kContactFile : where;
  if (!std::filesystem::exists(file))
    throw ConfigError(
        "{}: no such file, so no job runs there. Give the folder of a run (out.dir) that `yoke train "
        "--nproc` "
        "has started on this machine and that has not ended.",
        file.string());
  JobAddress address = parse_job_address(read_file(file));
  try {
    net::Secret secret = address.protection == net::to_string(net::Protection::kNone)
                             ? net::Secret::known_to_all()
                             : fetch_key(key_address(address.job_id, address.generation), deadline);
    return {address, secret, deadline};
  } catch (const Error& error) {
    throw ConfigError("{}: the job of this file has ended, or runs elsewhere: {}", file.string(),
                      error.what());
  }
}

JobContact::JobContact(const JobAddress& address, const net::Secret& secret, Deadline deadline)
    : impl_(std::make_unique<Impl>()) {
  impl_->address = address;
  net::JobTicket ticket;
  ticket.job_id = address.job_id;
  ticket.generation = static_cast<uint32_t>(address.generation);
  ticket.secret = secret;
  ticket.protection = protection_of(address.protection);
  net::Introduction self;
  self.purpose = "control";
  impl_->connection =
      net::introduce(net::connect_to(net::parse_address(address.endpoint), deadline), ticket, self, deadline);
}

JobContact::~JobContact() = default;
JobContact::JobContact(JobContact&&) noexcept = default;

std::vector<JobContact::Rank> JobContact::ranks(Deadline deadline) {
  control::Note note = impl_->ask({{"verb", "ranks"}}, {}, deadline);
  if (!note.head.contains("ranks") || !note.head["ranks"].is_array() ||
      note.head["ranks"].size() > kMostRanks)
    throw CommError("the coordinator sent no list of ranks");
  std::vector<Rank> ranks;
  for (const nlohmann::json& one : note.head["ranks"])
    ranks.push_back({control::read_member(one), control::flag(one, "ended")});
  return ranks;
}

int JobContact::take_seats(int count, Deadline deadline) {
  control::Note note = impl_->ask({{"verb", "seats"}, {"count", count}}, {}, deadline);
  return static_cast<int>(control::number(note.head, "first", -1, kMaxWorldSize));
}

JobContact::Seat JobContact::seat(Deadline deadline) {
  control::Note note = impl_->ask({{"verb", "seat"}}, {}, deadline);
  Seat seat;
  seat.rank = static_cast<int>(control::number(note.head, "rank", 0, kMostRanks));
  seat.at_start = static_cast<int>(control::number(note.head, "at_start", 0, seat.rank));
  return seat;
}

const JobAddress& JobContact::address() const {
  return impl_->address;
}

std::string JobContact::ask(int rank, const std::string& question, Deadline deadline) {
  return impl_->ask({{"verb", "ask"}, {"rank", rank}}, question, deadline).value;
}

}  // namespace yoke::cluster
