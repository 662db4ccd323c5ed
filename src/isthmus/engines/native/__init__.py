"""What holds for one version of torch: passes over compiled programs, and kernels in C++."""
