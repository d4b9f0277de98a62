// Passes open files to processes of the same user on this machine, over an abstract unix socket.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "yoke/base/deadline.h"
#include "yoke/cluster/failure.h"

namespace yoke::comm::shared {

// Owns a file descriptor. Movable.
class File {
 public:
  explicit File(int descriptor = -1) : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  File& operator=(File&& other) noexcept;
  ~File();
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

// Sends copies of file descriptors to every process that presents the token.
class FileServer {
 public:
  FileServer();  // throws CommError
  // Value for receive_files(): socket name and token. Keep it private to the job.
  const std::string& ticket() const { return ticket_; }
  // Serves ranks 1 to size - 1, each once, without those that are `late` (by rank; empty: none). Other
  // callers (another user, a wrong token, no message) are rejected. Throws CommError: the job failed, or the
  // deadline passed.
  void serve(const std::vector<File>& files, int size, const cluster::Failure& failure,
             const Deadline& deadline, const std::vector<bool>& late = {});
  // After serve(): serves ranks that were restarted. Non-blocking; call it periodically.
  void serve_again(const std::vector<File>& files, int size);

 private:
  struct Caller {
    File socket;
    Deadline deadline;
  };
  bool knows(int socket, int size, int& rank) const;
  std::vector<Caller> callers_;  // connected, but not identified yet
  File listener_;
  std::string token_;
  std::string ticket_;
};

// Receives `count` files from the server of `ticket`. Throws CommError.
std::vector<File> receive_files(const std::string& ticket, int rank, size_t count,
                                const cluster::Failure& failure, const Deadline& deadline);

}  // namespace yoke::comm::shared
