# Whether the CUDA library is built, for which GPUs, and against what.
#
# AUTO follows the installed torch, so that a CPU user never waits for nvcc, and builds only the CPU library if
# there is neither nvcc nor a GPU; without the Python package it follows the compiler. ON works against a CPU
# build of torch too: the kernels need only the toolkit, and the op library records libtorch_cuda.so by name.
#
# Code for 8.0 runs on 8.6 and 8.9 too, that for 10.0 on 10.3; the PTX of the last is for later GPUs.
set(SYNCFREE_ALL_ARCHITECTURES 75-real 80-real 90-real 100-real 120)

include(CheckLanguage)
if(NOT SYNCFREE_PYTHON)
  set(TORCH_CUDA_VERSION none)
  set(SYNCFREE_FOUND_GPUS none)
  if(SYNCFREE_CUDA STREQUAL "AUTO")
    check_language(CUDA)
  endif()
endif()

set(SYNCFREE_BUILD_CUDA OFF)
if(SYNCFREE_CUDA STREQUAL "ON" OR (SYNCFREE_CUDA STREQUAL "AUTO"
    AND (NOT TORCH_CUDA_VERSION STREQUAL "none" OR (NOT SYNCFREE_PYTHON AND CMAKE_CUDA_COMPILER))))
  set(SYNCFREE_BUILD_CUDA ON)
  if(SYNCFREE_CUDA STREQUAL "AUTO" AND SYNCFREE_FOUND_GPUS STREQUAL "none")
    # PyPI's torch is a build for CUDA, also on machines without CUDA.
    check_language(CUDA)
    if(NOT CMAKE_CUDA_COMPILER)
      message(WARNING "syncfree: torch ${TORCH_VERSION} is built for CUDA, but this machine has neither nvcc nor "
        "a GPU: only the CPU library is built. SYNCFREE_CUDA=ON asks for both.")
      set(SYNCFREE_BUILD_CUDA OFF)
    endif()
  endif()
elseif(NOT SYNCFREE_CUDA MATCHES "^(AUTO|OFF)$")
  message(FATAL_ERROR "syncfree: SYNCFREE_CUDA is AUTO, ON or OFF, but got '${SYNCFREE_CUDA}'.")
endif()

if(SYNCFREE_BUILD_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    if(SYNCFREE_CUDA STREQUAL "AUTO" AND NOT SYNCFREE_FOUND_GPUS STREQUAL "none")
      string(REPLACE "," ";" CMAKE_CUDA_ARCHITECTURES "${SYNCFREE_FOUND_GPUS}")
    else()
      set(CMAKE_CUDA_ARCHITECTURES ${SYNCFREE_ALL_ARCHITECTURES})
    endif()
  endif()
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    if(SYNCFREE_PYTHON)
      set(torch_text ", torch ${TORCH_VERSION} with CUDA ${TORCH_CUDA_VERSION}")
    endif()
    message(FATAL_ERROR
      "syncfree: the CUDA library was asked for (SYNCFREE_CUDA=${SYNCFREE_CUDA}${torch_text}), but no nvcc was "
      "found.\n"
      "Install the CUDA toolkit and put nvcc on PATH, or name it:\n"
      "  CUDACXX=/usr/local/cuda/bin/nvcc pip install .\n"
      "or build the CPU library alone:\n"
      "  pip install . --config-settings=cmake.define.SYNCFREE_CUDA=OFF\n"
      "  cmake -DSYNCFREE_CUDA=OFF ...")
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)

  if(NOT TORCH_CUDA_VERSION STREQUAL "none")
    string(REGEX MATCH "^[0-9]+" torch_cuda_major "${TORCH_CUDA_VERSION}")
    if(NOT CUDAToolkit_VERSION_MAJOR EQUAL torch_cuda_major)
      message(FATAL_ERROR
        "syncfree: nvcc is CUDA ${CUDAToolkit_VERSION}, but the installed torch ${TORCH_VERSION} is built for CUDA "
        "${TORCH_CUDA_VERSION}.\nUse a toolkit of the same major version:\n"
        "  CUDACXX=/usr/local/cuda-${torch_cuda_major}/bin/nvcc pip install .\n"
        "or install a torch built for CUDA ${CUDAToolkit_VERSION_MAJOR}.")
    endif()
    set(torch_cuda_file "${TORCH_DIR}/lib/libtorch_cuda.so")
  elseif(SYNCFREE_PYTHON)
    # A CPU torch has no libtorch_cuda.so, but our library must name it as a dependency: otherwise its symbols
    # are not looked up there when a CUDA torch loads it. So link an empty library of that name, which is not
    # installed.
    file(WRITE "${CMAKE_BINARY_DIR}/torch_cuda_stub.cpp" "")
    add_library(torch_cuda_stub SHARED "${CMAKE_BINARY_DIR}/torch_cuda_stub.cpp")
    set_target_properties(torch_cuda_stub PROPERTIES LIBRARY_OUTPUT_NAME torch_cuda)
    set(torch_cuda_file torch_cuda_stub)
  endif()
  if(SYNCFREE_PYTHON)
    add_library(torch_cuda_library INTERFACE)
    target_link_libraries(torch_cuda_library INTERFACE
      -Wl,--push-state,--no-as-needed ${torch_cuda_file} -Wl,--pop-state)
  endif()
  string(JOIN "," SYNCFREE_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES})
  set(SYNCFREE_CUDA_VERSION "${CUDAToolkit_VERSION}")
endif()

if(SYNCFREE_PYTHON)
  message(STATUS "syncfree: torch ${TORCH_VERSION} (CUDA ${TORCH_CUDA_VERSION}) in ${TORCH_DIR}")
endif()
if(SYNCFREE_BUILD_CUDA)
  message(STATUS "syncfree: CUDA library with nvcc ${CUDAToolkit_VERSION} for ${SYNCFREE_ARCHITECTURES}")
else()
  message(STATUS "syncfree: CPU library only")
endif()
