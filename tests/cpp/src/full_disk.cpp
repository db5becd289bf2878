// Sends requests into a file that may not grow beyond a limit, which is lifted after the third attempt of one of them.
//
//   full_disk FILE MODE LIMIT REQUESTS BYTES
//
// Request n is BYTES times the letter 'a' + n. Prints how many attempts there were.
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "otel_bridge.h"
#include "pal.h"

int main(int argc, char** argv) {
  if (argc != 6) {
    return 2;
  }
  std::FILE* file = std::fopen(argv[1], argv[2]);
  if (file == nullptr) {
    return 2;
  }
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit lifted = {};
  getrlimit(RLIMIT_FSIZE, &lifted);
  rlimit limit = lifted;
  limit.rlim_cur = std::strtoul(argv[3], nullptr, 10);
  setrlimit(RLIMIT_FSIZE, &limit);

  otel_bridge::FileTransport transport(file);
  const long requests = std::strtol(argv[4], nullptr, 10);
  unsigned attempts = 0;
  for (long number = 0; number < requests; ++number) {
    const std::vector<char> request(std::strtoul(argv[5], nullptr, 10), static_cast<char>('a' + number));
    for (unsigned attempt = 1; ++attempts != 0 && !transport.send(request.data(), request.size()); ++attempt) {
      if (attempt == 3) {
        setrlimit(RLIMIT_FSIZE, &lifted);
      }
      if (attempt > 9) {
        return 1;
      }
    }
  }
  std::printf("%u\n", attempts);
  return std::fclose(file) == 0 ? 0 : 1;
}
