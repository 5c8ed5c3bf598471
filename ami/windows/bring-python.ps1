# Installs the Python that runs the steps of the recipe, and later the agent. The installer's exit status decides
# nothing: Python must start and say its version. The values come from versions.yaml.
$ErrorActionPreference = 'Stop'
# The progress bar slows a download down many times.
$ProgressPreference = 'SilentlyContinue'
$folder = 'C:\runner-agent\python'
$python = "$folder\python.exe"
$installer = 'C:\image-build\python-installer.exe'
if (Test-Path $python) { throw "$python is there already: the base image is not a stock image" }
for ($try = 1; $try -le 5; $try++) {
  try {
    Invoke-WebRequest -UseBasicParsing -TimeoutSec 300 -Uri $env:PYTHON_URL -OutFile $installer
    break
  } catch {
    Write-Output "image-build: the download of Python failed, try $try of 5: $($_.Exception.Message)"
    if ($try -eq 5) { throw }
    Start-Sleep -Seconds (5 * $try)
  }
}
$found = (Get-FileHash -Algorithm SHA256 $installer).Hash
if ($found -ne $env:PYTHON_SHA256) { throw "$env:PYTHON_URL has the SHA-256 $found, not $env:PYTHON_SHA256" }
$options = '/quiet', 'InstallAllUsers=1', "TargetDir=$folder", 'Include_test=0', 'Include_doc=0'
$options += 'Include_tcltk=0', 'Include_launcher=0', 'Shortcuts=0'
$process = Start-Process -FilePath $installer -ArgumentList $options -PassThru
if (-not $process.WaitForExit(900000)) {
  # With its children, which would keep Packer's connection open.
  taskkill /f /t /pid $process.Id
  throw "Python's installer did not end within 900 s"
}
Remove-Item -Force $installer
if (-not (Test-Path $python)) { throw "Python's installer exited with $($process.ExitCode) and installed nothing" }
$version = & $python -I -c 'import platform; print(platform.python_version())'
if ($version -ne $env:PYTHON_VERSION) { throw "Python says version $version, not $env:PYTHON_VERSION" }
Write-Output "image-build: Python $version"
